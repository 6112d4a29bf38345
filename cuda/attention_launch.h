// The attention kernels of one head size and type of cache. Called by launch_attention()
// alone.
#pragma once

#include "cuda/attention_kernels.h"

namespace batchmill {

// kDim: 16, 32, 64, 128, 256. kKv: bf16, int8 or FP8.
template <int kDim, DType kKv>
void launch_wide_attention(const AttentionArguments& arguments, int blocks, StreamHandle stream);
template <int kDim, DType kKv>
void launch_narrow_attention(const AttentionArguments& arguments, int blocks, int shared_bytes,
                             StreamHandle stream);

}  // namespace batchmill
