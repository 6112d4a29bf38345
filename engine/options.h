// Settings of the engine. Names follow the field's: vLLM users will know them.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/types.h"

namespace batchmill {

struct EngineOptions {
  // Most sequences that share a step. More uses the device better and needs more KV blocks.
  std::int32_t max_num_seqs = 64;

  // Most rows (tokens) of a step. Larger prefill chunks are more efficient; smaller ones keep the
  // time between two tokens of a running sequence short.
  std::int32_t max_num_batched_tokens = 2048;

  // Longest sequence: the model's trained context or what the configuration lowers it to.
  std::int32_t max_context_tokens = 2048;

  // Generated tokens for which room must be free before a sequence starts (fewer if max_tokens is).
  std::int32_t generation_reserve_tokens = 64;

  // Whether a step is begun before the tokens of the one ahead of it are read, where the runner
  // draws tokens (ModelRunner::begin). Answers are the same.
  bool runs_ahead = true;

  // Ids that end a choice (end of sequence, end of turn), unless ignore_eos.
  std::vector<TokenId> eos_token_ids;
};

}  // namespace batchmill
