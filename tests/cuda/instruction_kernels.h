// One warp at the instructions that kernels are made of: what they do to numbered data.
#pragma once

#include <cstdint>

#include "cuda/stream.h"
#include "engine/tensor.h"

namespace batchmill::testing {

// fragments [32 lanes][4] = four matrices [4][8][8] of 16-bit elements as lanes hold them.
void launch_matrix_load(const std::uint16_t* matrices, bool transposed, std::uint32_t* fragments,
                        StreamHandle stream);

// c [16, 8] += a [16, 16] · b [16, 8] bf16.
void launch_product(const std::uint16_t* a, const std::uint16_t* b, float* c, StreamHandle stream);

// output [2][32 lanes][8]: lane l's eight elements of input in the first half; in the second those
// of lanes of even number, zeros for the others. Both by asynchronous copies of two groups.
void launch_copies(const std::uint16_t* input, std::uint16_t* output, StreamHandle stream);

// Of each pair (a, b): [0] a and b in bf16, [1] a × b + b in two roundings, [2] 2^a, [3] a ÷ b; the
// last three as bits of floats.
void launch_arithmetic(const float* pairs, std::uint32_t* results, int count, StreamHandle stream);

// results [count] = a × b + c of each three pairs of bf16.
void launch_multiply_add(const std::uint32_t* operands, std::uint32_t* results, int count,
                         StreamHandle stream);

// results [2 × count]: bytes 0 and 2 of each word in bf16, then 1 and 3. `kv`: int8 or FP8.
void launch_widen(DType kv, const std::uint32_t* words, std::uint32_t* results, int count,
                  StreamHandle stream);

// bytes [count]: the nearest to each value.
void launch_narrow(DType kv, const float* values, std::uint32_t* bytes, int count,
                   StreamHandle stream);

}  // namespace batchmill::testing
