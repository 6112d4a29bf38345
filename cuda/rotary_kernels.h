// Rotary positions, and the way of keys and values into the cache.
#pragma once

#include <cstdint>

#include "cuda/stream.h"
#include "engine/tensor.h"

namespace batchmill {

// output [rows, 2 half] f32 = cosines [half], then sines of position × frequency, × magnitude.
struct RotationArguments {
  const std::int32_t* positions;  // [rows]
  const float* frequencies;  // [half], radians per position
  float* output;
  int half;
  float magnitude;
  // Dynamic NTK scaling beyond original_context positions; 0: none. Frequency i of a row at
  // position p is multiplied by growth^(−i ÷ (half − 1)), growth = factor × (p + 1) ÷ original −
  // (factor − 1).
  int original_context;
  float factor;
};
void launch_rotation_table(const RotationArguments& arguments, int rows, StreamHandle stream);

// Rows of qkv are [heads | kv heads | kv heads] × dim bf16. Norms q and k (RMS, if there are
// weights), rotates pairs (i, i + dim ÷ 2) of both (if there is a table), writes q back and stores
// k and v at the rows' slots of one layer, [block][K, V][kv head][slot][dim]. A negative slot:
// nothing is stored. In caches of bytes (kv_bytes.h) [slot] scales lie behind a head's rows, and
// keys are stored less their offset; in int8 queries and keys are mixed.
struct StoreArguments {
  void* qkv;
  const float* query_norm;  // [dim] or null, then the other is null too
  const float* key_norm;
  float epsilon;
  const float* rotations;  // [rows, dim] as above, or null
  const std::int32_t* slots;  // [rows]
  void* cache;
  int heads;
  int kv_heads;
  int dim;  // a multiple of 16, at most 512; of bytes a power of two
  int block_tokens;  // of bytes a multiple of 4
  DType kv;  // bf16, int8 or FP8
  const float* key_offset;  // [kv heads, dim] or null
};
void launch_store(const StoreArguments& arguments, int rows, StreamHandle stream);

}  // namespace batchmill
