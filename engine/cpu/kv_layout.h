// Where an element of K or V lies inside a block of the CPU backend's cache.
//
// A layer's block is [kv heads][2 (K, V)][block size ÷ 16] groups of 16 tokens × D elements.
// Elements that a product sums in one instruction lie side by side: `pack` is 2 for bf16, 1 for
// f32.
//   K group: [D ÷ pack][16 tokens][pack]    lanes are tokens
//   V group: [16 tokens ÷ pack][D][pack]    lanes are dimensions
#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/tensor.h"

namespace batchmill {

inline constexpr std::int32_t kKvGroupTokens = 16;

constexpr std::int32_t kv_pack(DType dtype) { return dtype == DType::kBF16 ? 2 : 1; }

constexpr std::int64_t k_index(std::int32_t token, std::int32_t dim, std::int32_t pack) {
  return (std::int64_t{dim} / pack * kKvGroupTokens + token) * pack + dim % pack;
}

constexpr std::int64_t v_index(std::int32_t token, std::int32_t dim, std::int32_t pack,
                               std::int32_t head_dim) {
  return (std::int64_t{token} / pack * head_dim + dim) * pack + token % pack;
}

// First element of a group, counted from the layer's start. `which`: 0 is K, 1 is V.
constexpr std::int64_t kv_group_index(std::int64_t block, std::int32_t which, std::int32_t head,
                                      std::int32_t token_in_block, std::int32_t num_kv_heads,
                                      std::int32_t block_size_tokens, std::int32_t head_dim) {
  const std::int64_t row = (block * num_kv_heads + head) * 2 + which;
  return (row * block_size_tokens + token_in_block / kKvGroupTokens * kKvGroupTokens) * head_dim;
}

}  // namespace batchmill
