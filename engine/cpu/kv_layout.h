// Where an element of K or V lies inside a block of the CPU backend's cache.
//
// A layer's block is [kv heads][2 (K, V)][block size ÷ 16] groups of 16 tokens × D elements.
// Elements that a product sums in one instruction lie side by side.
//   K group: [D ÷ pack][16 tokens][pack]    lanes are tokens
//   V group: [16 tokens ÷ pack][D][pack]    lanes are dimensions
// where pack is 4 for int8, 2 for bf16, else 1.
// An int8 group goes on with [16 tokens] float32 scales, of V their logarithms to base 2. Its
// elements are rotated (int8_layout.h); those of K are stored plus 128.
#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/kv_cache.h"

namespace batchmill {

inline constexpr std::int32_t kKvGroupTokens = 16;

// Elements side by side, by the size of one.
constexpr std::int32_t k_pack(std::size_t element_bytes) {
  return 4 / static_cast<std::int32_t>(element_bytes);
}
constexpr std::int32_t v_pack(std::size_t element_bytes) { return k_pack(element_bytes); }

constexpr std::int64_t k_index(std::int32_t token, std::int32_t dim, std::int32_t pack) {
  return (std::int64_t{dim} / pack * kKvGroupTokens + token) * pack + dim % pack;
}

constexpr std::int64_t v_index(std::int32_t token, std::int32_t dim, std::int32_t pack,
                               std::int32_t head_dim) {
  return (std::int64_t{token} / pack * head_dim + dim) * pack + token % pack;
}

// First byte of a group, counted from the layer's start. `which`: 0 is K, 1 is V; `token_bytes` as
// kv_token_bytes().
constexpr std::int64_t kv_group_offset(std::int64_t block, std::int32_t which, std::int32_t head,
                                       std::int32_t token_in_block, std::int32_t num_kv_heads,
                                       std::int32_t block_size_tokens, std::int32_t token_bytes) {
  const std::int64_t row = (block * num_kv_heads + head) * 2 + which;
  return (row * block_size_tokens + token_in_block / kKvGroupTokens * kKvGroupTokens) * token_bytes;
}

}  // namespace batchmill
