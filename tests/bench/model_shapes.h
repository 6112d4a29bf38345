// The shapes that benchmarks measure: those of SmolLM2-135M, whose rates the README states.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <random>
#include <vector>

#include "engine/batch.h"
#include "engine/operands.h"

namespace batchmill::bench {

inline constexpr std::int32_t kHidden = 576;
inline constexpr std::int32_t kIntermediate = 1536;
inline constexpr std::int32_t kVocabulary = 49'152;
inline constexpr HeadShape kHeads{9, 3, 64};
inline constexpr std::int32_t kBlockSize = 16;
inline constexpr std::uint32_t kSeed = 20'250'101;

struct ProductShape {
  std::int32_t out;
  std::int32_t in;
};
// q, k and v; attention's output; gate and up; down.
inline constexpr ProductShape kLayerProducts[] = {
    {960, kHidden}, {kHidden, kHidden}, {2 * kIntermediate, kHidden}, {kHidden, kIntermediate}};

// `num_seqs` sequences of `context` tokens of which the last `rows` are computed. The first
// `shared` tokens are the same blocks in all of them; all others lie in random order, as in a pool
// that has been in use.
inline Batch make_batch(std::int32_t num_seqs, std::int32_t context, std::int32_t rows,
                        std::int32_t shared) {
  Batch batch;
  batch.max_blocks = (context + kBlockSize - 1) / kBlockSize;
  const std::int32_t shared_blocks = shared / kBlockSize;
  const std::int32_t own_blocks = batch.max_blocks - shared_blocks;
  std::vector<BlockId> own(static_cast<std::size_t>(num_seqs) *
                           static_cast<std::size_t>(own_blocks));
  std::iota(own.begin(), own.end(), shared_blocks);
  std::mt19937 random(kSeed);
  std::shuffle(own.begin(), own.end(), random);
  auto next_own = own.begin();
  batch.cu_seqlens.push_back(0);
  for (std::int32_t s = 0; s < num_seqs; ++s) {
    const std::size_t table = batch.block_tables.size();
    for (std::int32_t b = 0; b < batch.max_blocks; ++b) {
      batch.block_tables.push_back(b < shared_blocks ? b : *next_own++);
    }
    for (std::int32_t p = context - rows; p < context; ++p) {
      const BlockId block = batch.block_tables[table + static_cast<std::size_t>(p / kBlockSize)];
      batch.token_ids.push_back(static_cast<TokenId>(random() % kVocabulary));
      batch.positions.push_back(p);
      batch.slot_mapping.push_back(block * kBlockSize + p % kBlockSize);
    }
    batch.cu_seqlens.push_back(batch.num_tokens());
    batch.context_lens.push_back(context);
    batch.logits_rows.push_back(batch.num_tokens() - 1);
  }
  return batch;
}

}  // namespace batchmill::bench
