// What kernels that take more than a row are told. Plain values; see kernels.h for the pointers'
// types.
#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/types.h"

namespace batchmill {

// Most rows of stacked queries that a task's scratch has room for by default; more only if one kv
// head has more query heads.
inline constexpr std::int32_t kAttentionTileRows = 48;

// Consecutive query tokens of one sequence.
struct AttentionPart {
  const void* queries = nullptr;  // act: first token, first query head of the kv head
  void* output = nullptr;  // act: likewise
  const BlockId* block_table = nullptr;
  std::int32_t num_queries = 0;
  std::int32_t first_position = 0;  // of the first token
  std::int32_t num_keys = 0;  // of the sequence, up to the last one that any token sees
};

// Keys of a sequence and kv head that are read next, from `key_begin` on.
struct NextKeys {
  const AttentionPart* part = nullptr;  // none: not known
  std::int32_t kv_head = 0;
  std::int32_t key_begin = 0;
};

// One part, or several of one query each (causal, without a window), against one kv head. Parts
// whose block tables begin alike should be neighbours: what they share is read once.
struct AttentionTask {
  const AttentionPart* parts = nullptr;
  std::int32_t num_parts = 0;
  std::int64_t query_stride = 0;  // elements from one token to the next
  std::int64_t output_stride = 0;
  const std::byte* layer = nullptr;  // kv: the layer's blocks (kv_layout.h)
  std::int32_t window_tokens = 0;  // > 0: a token sees itself and window − 1 keys before it
  bool causal = true;  // a token sees no key behind itself
  std::int32_t group_heads = 0;  // query heads per kv head
  std::int32_t kv_head = 0;
  std::int32_t num_kv_heads = 0;
  std::int32_t head_dim = 0;
  std::int32_t block_size_tokens = 0;
  float scale = 1.0f;
  float* scratch = nullptr;  // attention_scratch_floats(), aligned to 64 bytes
  // Of the task that follows this one, as far as is known.
  NextKeys after;
  const void* next_queries = nullptr;  // act, with the same stride
  std::int32_t num_next_queries = 0;
};

// Of an int8 cache.
inline constexpr std::int32_t kMaxHeadDim = 1024;

// Query tokens per task, so that their stacked heads fit kAttentionTileRows.
std::int32_t attention_tile_queries(std::int32_t group_heads);
// Room for one number of each row: whole vectors may be read from any row on.
constexpr std::int32_t attention_row_floats(std::int32_t rows) { return (rows + 31) / 16 * 16; }
std::size_t attention_scratch_floats(std::int32_t group_heads, std::int32_t head_dim);

// What turns the bytes of a row back into numbers.
struct QuantizedRow {
  float scale = 0.0f;
  std::int32_t offset = 0;  // of every sum of products with weights + 128
};

// Int8 rows times some panels of a packed matrix (int8_layout.h).
struct ProductTask {
  const std::int8_t* rows = nullptr;  // [num_rows, cols]
  const QuantizedRow* row_scales = nullptr;  // [num_rows]
  std::int32_t num_rows = 0;
  std::int32_t cols = 0;  // a multiple of 16
  const std::uint8_t* panels = nullptr;  // of the whole matrix
  std::int32_t first_panel = 0;
  std::int32_t end_panel = 0;
  const float* column_scales = nullptr;  // [outputs, rounded up to whole panels]
  const float* bias = nullptr;  // likewise, or none
  std::int32_t num_columns = 0;  // outputs
  void* output = nullptr;  // [num_rows, output_stride]
  std::int64_t output_stride = 0;
};

// Matrices whose products have one order of summing are strips of 64 outputs, a strip is
// [4][inputs ÷ pack][16 outputs][pack]: lanes are outputs, `pack` is 2 for bf16 and 1 for f32.
inline constexpr std::int32_t kStripColumns = 64;
inline constexpr std::int32_t kStripLanes = 16;

// Some rows against one strip.
struct StripTask {
  const void* input = nullptr;  // act [num_rows, in_features]
  const void* strip = nullptr;  // act
  const float* bias = nullptr;  // [num_columns] or none
  void* output = nullptr;  // first row's first output of the strip
  std::int64_t output_stride = 0;  // elements from one row to the next
  std::int32_t num_rows = 0;
  std::int32_t num_columns = 0;  // outputs that exist, at most kStripColumns
  std::int32_t in_features = 0;
  bool accumulate = false;
};

// Heads that share the reading of a cached row.
inline constexpr std::int32_t kLatentHeads = 4;

// Up to kLatentHeads heads of one token against the latent rows of its sequence.
struct LatentTask {
  const void* queries = nullptr;  // act [num_heads, width]
  void* output = nullptr;  // act [num_heads, value_dim]
  const std::byte* layer = nullptr;  // kv: [blocks][block size][width]
  const BlockId* block_table = nullptr;
  std::int32_t num_heads = 0;
  std::int32_t num_keys = 0;  // up to the token itself
  std::int32_t width = 0;
  std::int32_t value_dim = 0;  // leading elements of a row that are its value
  std::int32_t block_size_tokens = 0;
  float scale = 1.0f;
  float* scratch = nullptr;  // latent_scratch_floats(), aligned to 64 bytes
};

// Floats from one head's scores to the next one's.
constexpr std::int64_t latent_score_stride(std::int32_t num_keys) {
  return (std::int64_t{num_keys} + 15) / 16 * 16;
}
constexpr std::size_t latent_scratch_floats(std::int32_t width, std::int32_t num_keys) {
  return static_cast<std::size_t>(kLatentHeads * (width + latent_score_stride(num_keys)));
}

}  // namespace batchmill
