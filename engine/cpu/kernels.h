// The vector kernels of the CPU backend, one table per instruction set. All are pure functions on
// one row or one attention task; the caller divides the work over threads.
//
// "act" and "kv" pointers are float* or bfloat16 bits (uint16_t*), kv also int8_t*, as the table
// index says. Lengths are multiples of 16.
#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/cpu/instruction_set.h"
#include "engine/cpu/kernel_tasks.h"
#include "engine/model_config.h"
#include "engine/tensor.h"

namespace batchmill {

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

  // sum [cols] += input [cols] × scale.
  void (*add_row)(const float* input, std::int32_t cols, float scale, float* sum) = nullptr;

  // The sum of a × b.
  float (*dot)(const float* a, const float* b, std::int32_t cols) = nullptr;

  // Rotates heads [num_heads, head_dim] act in place; rotation: [cos D/2 | sin D/2].
  void (*rotate[2])(void* heads, std::int32_t num_heads, std::int32_t head_dim,
                    const float* rotation) = {};

  // Stores one token of one kv head: k (rotated on the way) and v act [head_dim] into groups of kv
  // at index `token` (0 to 15). `key_offset` [head_dim] or null: what int8 keys are stored less.
  // [act][kv]
  void (*store_kv[2][3])(const void* key, const void* value, std::int32_t head_dim,
                         const float* rotation, const float* key_offset, std::int32_t token,
                         void* key_group, void* value_group) = {};

  // output [cols] int8 = input [cols] act, rotated and divided by result.scale. work: [cols].
  void (*quantize_row[2])(const void* input, std::int32_t cols, float* work, std::int8_t* output,
                          QuantizedRow* result) = {};

  // output act = rows × panels, or f32 += likewise.
  void (*multiply_rows[2])(const ProductTask& task) = {};
  void (*multiply_rows_add)(const ProductTask& task) = nullptr;

  // [act][act or f32 output]
  void (*multiply_strip[2][2])(const StripTask& task) = {};

  // [act][kv]
  void (*attend[2][3])(const AttentionTask& task) = {};
  void (*attend_latent[2][2])(const LatentTask& task) = {};
};

// The set must be one that this processor supports.
const Kernels& kernels_for(InstructionSet set);

}  // namespace batchmill
