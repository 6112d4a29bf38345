// What of models and steps the CUDA backend takes, also for whoever asks before a device is
// touched. Plain functions; no kernels are linked.
#pragma once

#include <algorithm>
#include <cstdint>

#include "cuda/attention_plan.h"

namespace batchmill {

inline constexpr std::int32_t kMaxNormCols = 16384;
inline constexpr std::int32_t kMaxGroup = kWideRows;  // query heads per kv head

// Of KV caches in int8 and FP8: bytes of a layer, whose pieces of 16 bytes 32 bits count, and
// tokens of a block.
inline constexpr std::int64_t kLargestByteLayer = std::int64_t{INT32_MAX} * 16;
inline constexpr std::int32_t kFewestByteBlockTokens = 4;

constexpr bool is_attention_dim(std::int32_t dim) {
  return dim == 16 || dim == 32 || dim == 64 || dim == 128 || dim == 256;
}

// So many draws that change logits are begun at once: as many as there are rows of logits that they
// are from, in sixteens. A row may have many draws; those behind use the same working memory.
constexpr std::int32_t draw_group_rows(std::int32_t logits_rows) {
  return (logits_rows + 15) / 16 * 16;
}

// Results of split keys that wait to be combined. A step that would have more attends in parts,
// unless one sequence alone has more.
inline constexpr std::int64_t kMaxPartialBytes = 256 << 20;

// Of a packed row on all kv heads: outputs, a maximum and a sum.
constexpr std::int64_t partial_row_bytes(std::int32_t kv_heads, std::int32_t dim) {
  return std::int64_t{kv_heads} * (dim + 2) * 4;
}

constexpr std::int32_t most_partial_rows(std::int32_t kv_heads, std::int32_t dim) {
  return static_cast<std::int32_t>(kMaxPartialBytes / partial_row_bytes(kv_heads, dim));
}

struct PartialShape {
  std::int32_t group = 1;
  std::int32_t kv_heads = 1;
  std::int32_t dim = 1;
  std::int32_t max_context_tokens = 1;
  std::int32_t max_sequences = 1;  // of a step
  std::int32_t max_rows = 1;  // of a step, query tokens
};

// The most that partial results of a step take.
constexpr std::int64_t most_partial_bytes(const PartialShape& shape) {
  const auto splits_of = [&](std::int64_t keys) {
    return (shape.max_context_tokens + keys - 1) / keys;
  };
  const std::int64_t packed = std::int64_t{shape.max_rows} * shape.group;
  const std::int64_t narrow = std::min(packed, std::int64_t{shape.max_sequences} * kNarrowRows) *
                              splits_of(kNarrowSplitKeys);
  const std::int64_t wide =
      packed * std::min<std::int64_t>(kWideSplitBlocks, splits_of(kFewestWideSplitKeys));
  const std::int64_t of_one = std::max<std::int64_t>(kWideSplitBlocks * kWideRows,
                                                     kNarrowRows * splits_of(kNarrowSplitKeys));
  const std::int64_t most =
      std::max<std::int64_t>(most_partial_rows(shape.kv_heads, shape.dim), of_one);
  return std::min(narrow + wide, most) * partial_row_bytes(shape.kv_heads, shape.dim);
}

}  // namespace batchmill
