// Products of a few rows with weights, where reading the weights is all the work. A row's sums are
// made in the same order whatever rows are beside it.
#pragma once

#include "cuda/stream.h"

namespace batchmill {

inline constexpr int kMaxProductRows = 8;

// All in device memory.
struct ProductArguments {
  const void* weight;  // bf16 [out, in]
  const void* input;  // bf16 [rows, in]
  const float* bias;  // [out]; null: none
  void* output;  // [rows, out]
  int rows;  // at most kMaxProductRows
  int out;
  int in;  // a multiple of 8
  bool is_f32;  // what output holds; else bf16
  bool accumulate;  // what output f32 held is added
};

void launch_product(const ProductArguments& arguments, StreamHandle stream);

}  // namespace batchmill
