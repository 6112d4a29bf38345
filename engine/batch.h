// One step's work for a device: flat arrays, sequences in order, prefill chunks and decodes alike.
// The scheduler makes it, a ModelRunner runs it. N = rows (tokens) of the step, S = sequences.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/types.h"

namespace batchmill {

// Copies the first num_tokens slots of one block (all layers, K and V) into another, before the
// step's layers run. Sources are blocks that were valid before the step.
struct BlockCopy {
  BlockId source = kNoBlock;
  BlockId destination = kNoBlock;
  std::int32_t num_tokens = 0;
};

// A row's token is what a draw of the step before chooses, which may still be under way. If it
// chooses none, any token will do.
struct DrawnToken {
  std::int32_t row = 0;
  std::int32_t draw = 0;
};

struct Batch {
  std::vector<TokenId> token_ids;  // [N]; kNoToken in rows of drawn_tokens
  std::vector<DrawnToken> drawn_tokens;  // rows ascend
  std::vector<std::int32_t> positions;  // [N] position in the sequence, from 0
  std::vector<std::int32_t> slot_mapping;  // [N] block id × block size + offset: where K/V go
  std::vector<std::int32_t> cu_seqlens;  // [S + 1] first row of each sequence; last is N
  std::vector<std::int32_t> context_lens;  // [S] KV tokens of the sequence once this step's are in
  std::vector<BlockId> block_tables;  // [S, max_blocks] padded with kNoBlock
  std::int32_t max_blocks = 0;  // row length of block_tables
  std::vector<std::int32_t> logits_rows;  // [R] rows whose vocabulary logits are wanted, ascending
  std::vector<BlockCopy> copies;

  std::int32_t num_tokens() const { return static_cast<std::int32_t>(token_ids.size()); }
  std::int32_t num_seqs() const { return static_cast<std::int32_t>(context_lens.size()); }

  // Empties all arrays and keeps their memory.
  void clear();
};

}  // namespace batchmill
