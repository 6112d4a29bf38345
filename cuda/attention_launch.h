// The attention kernels of one head size, each in its own source. Called by launch_attention()
// alone.
#pragma once

#include "cuda/attention_kernels.h"

namespace batchmill {

// kDim: 16, 32, 64, 128, 256.
template <int kDim>
void launch_wide_attention(const AttentionArguments& arguments, int blocks, StreamHandle stream);
template <int kDim>
void launch_narrow_attention(const AttentionArguments& arguments, int blocks, StreamHandle stream);

}  // namespace batchmill
