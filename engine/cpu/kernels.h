// The vector kernels of the CPU backend, one table per instruction set. All are pure functions on
// one row or one attention task; the caller divides the work over threads.
//
// "act" and "kv" pointers are float* or bfloat16 bits (uint16_t*), as the table index says. Lengths
// are multiples of 16.
#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/cpu/instruction_set.h"
#include "engine/model_config.h"
#include "engine/tensor.h"
#include "engine/types.h"

namespace batchmill {

// Most rows of stacked queries that a task's scratch has room for by default; more only if one kv
// head has more query heads.
inline constexpr std::int32_t kAttentionTileRows = 48;

// Consecutive query tokens of one sequence against one kv head.
struct AttentionTask {
  const void* queries = nullptr;  // act: first token, first query head of the kv head
  void* output = nullptr;  // act: likewise
  std::int64_t query_stride = 0;  // elements from one token to the next
  std::int64_t output_stride = 0;
  const std::byte* layer = nullptr;  // kv: the layer's blocks (kv_layout.h)
  const BlockId* block_table = nullptr;
  std::int32_t num_queries = 0;
  std::int32_t first_position = 0;  // of the first token
  std::int32_t num_keys = 0;  // of the sequence, up to the last one that any token sees
  std::int32_t window_tokens = 0;  // > 0: a token sees itself and window − 1 keys before it
  bool causal = true;  // a token sees no key behind itself
  std::int32_t group_heads = 0;  // query heads per kv head
  std::int32_t kv_head = 0;
  std::int32_t num_kv_heads = 0;
  std::int32_t head_dim = 0;
  std::int32_t block_size_tokens = 0;
  float scale = 1.0f;
  float* scratch = nullptr;  // attention_scratch_floats(), aligned to 64 bytes
};

// Query tokens per task, so that their stacked heads fit kAttentionTileRows.
std::int32_t attention_tile_queries(std::int32_t group_heads);
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

struct Kernels {
  InstructionSet set = InstructionSet::kBaseline;

  // out [cols] act = input [cols] ÷ rms × weight [cols].
  void (*rms_norm[2])(const float* input, const float* weight, std::int32_t cols, float epsilon,
                      void* output) = {};

  // out [cols] act = (input [cols] − mean) ÷ deviation × weight + bias.
  void (*layer_norm[2])(const float* input, const float* weight, const float* bias,
                        std::int32_t cols, float epsilon, void* output) = {};

  // Heads [num_heads, head_dim] act ÷ rms × weight [head_dim], in place.
  void (*norm_heads[2])(void* heads, std::int32_t num_heads, std::int32_t head_dim,
                        const float* weight, float epsilon) = {};

  // out [inner] act = act(gate) × up of [gate | up] act, or act(gate). [Activation][gated][act]
  void (*activate[3][2][2])(const void* input, std::int32_t inner, void* output) = {};

  // out [cols] f32 = act × scale.
  void (*widen[2])(const void* input, std::int32_t cols, float scale, float* output) = {};

  // out [cols] act = f32.
  void (*narrow[2])(const float* input, std::int32_t cols, void* output) = {};

  // sum [cols] += input [cols].
  void (*add_row)(const float* input, std::int32_t cols, float* sum) = nullptr;

  // Rotates heads [num_heads, head_dim] act in place; rotation: [cos D/2 | sin D/2].
  void (*rotate[2])(void* heads, std::int32_t num_heads, std::int32_t head_dim,
                    const float* rotation) = {};

  // Stores one token of one kv head: k (rotated on the way) and v act [head_dim] into groups of kv
  // at index `token` (0 to 15). [act][kv]
  void (*store_kv[2][2])(const void* key, const void* value, std::int32_t head_dim,
                         const float* rotation, std::int32_t token, void* key_group,
                         void* value_group) = {};

  // output [cols] int8 = input [cols] act, rotated and divided by result.scale. work: [cols].
  void (*quantize_row[2])(const void* input, std::int32_t cols, float* work, std::int8_t* output,
                          QuantizedRow* result) = {};

  // output act = rows × panels, or f32 += likewise.
  void (*multiply_rows[2])(const ProductTask& task) = {};
  void (*multiply_rows_add)(const ProductTask& task) = nullptr;

  // [act][act or f32 output]
  void (*multiply_strip[2][2])(const StripTask& task) = {};

  // [act][kv]
  void (*attend[2][2])(const AttentionTask& task) = {};
};

// The set must be one that this processor supports.
const Kernels& kernels_for(InstructionSet set);

}  // namespace batchmill
