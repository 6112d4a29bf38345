// Kernels that copy, add or average whole rows: embeddings, positions, gathers, means, cache
// blocks. Column counts are multiples of 8.
#pragma once

#include <cstdint>

#include "cuda/stream.h"

namespace batchmill {

// output [rows, cols] f32 = rows ids of table [·, cols] bf16 × scale.
void launch_embed(const std::int32_t* ids, const void* table, float scale, float* output, int rows,
                  int cols, StreamHandle stream);

// sum [rows, cols] f32 += rows ids of table [·, cols] f32.
void launch_add_rows(const std::int32_t* ids, const float* table, float* sum, int rows, int cols,
                     StreamHandle stream);

// output [rows, cols] f32 = rows ids of input [·, cols] f32.
void launch_gather(const std::int32_t* ids, const float* input, float* output, int rows, int cols,
                   StreamHandle stream);

// output [sequences, cols] f32 = mean of rows begins[s] … begins[s + 1] of input, scaled to unit
// length. cols: at most kMaxMeanCols.
inline constexpr int kMaxMeanCols = 4096;
void launch_mean(const std::int32_t* begins, const float* input, float* output, int sequences,
                 int cols, StreamHandle stream);

// ids[place] = chosen[draw] of each drawn token [num_drawn][2]: place, draw. 0 where none was
// chosen.
void launch_take_drawn(const std::int32_t* drawn, const std::int32_t* chosen, std::int32_t* ids,
                       int num_drawn, StreamHandle stream);

// Of cache blocks: parts are [layer][block][K, V × head], each block_tokens × row_bytes, then
// block_tokens × scale_bytes.
struct BlockCopyArguments {
  const std::int32_t* copies;  // [num][3]: source, destination, tokens
  void* cache;
  long long layer_bytes;
  int parts;  // 2 × kv heads
  int block_tokens;
  int row_bytes;  // a multiple of 16
  int scale_bytes;  // 0, or 4: then block_tokens is a multiple of 4
};
void launch_block_copy(const BlockCopyArguments& arguments, int num_copies, int num_layers,
                       StreamHandle stream);

}  // namespace batchmill
