// Norms over rows of float32. Rows are independent; one block each.
#pragma once

#include "cuda/stream.h"

namespace batchmill {

enum class NormOutput { kBf16, kF32, kAdd };  // kAdd: sum f32 += norm of the row

struct NormArguments {
  const float* input;  // [rows, cols]
  const float* weight;  // [cols]
  const float* bias;  // [cols]: a layer norm; null: an RMS norm
  void* output;  // [rows, cols]; f32 may be the input
  int cols;  // a multiple of 8, at most kMaxNormCols
  float epsilon;
};

void launch_norm(const NormArguments& arguments, NormOutput output, int rows, StreamHandle stream);

// output bf16 = input f32, `count` elements, a multiple of 8.
void launch_convert(const float* input, void* output, long long count, StreamHandle stream);

}  // namespace batchmill
