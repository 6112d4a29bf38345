// Attention of many rows over caches in int8 and FP8.
#include "cuda/attention_wide.h"

namespace batchmill {

template void launch_wide_attention<16, DType::kI8>(const AttentionArguments&, int, StreamHandle);
template void launch_wide_attention<32, DType::kI8>(const AttentionArguments&, int, StreamHandle);
template void launch_wide_attention<64, DType::kI8>(const AttentionArguments&, int, StreamHandle);
template void launch_wide_attention<128, DType::kI8>(const AttentionArguments&, int, StreamHandle);
template void launch_wide_attention<256, DType::kI8>(const AttentionArguments&, int, StreamHandle);
template void launch_wide_attention<16, DType::kF8>(const AttentionArguments&, int, StreamHandle);
template void launch_wide_attention<32, DType::kF8>(const AttentionArguments&, int, StreamHandle);
template void launch_wide_attention<64, DType::kF8>(const AttentionArguments&, int, StreamHandle);
template void launch_wide_attention<128, DType::kF8>(const AttentionArguments&, int, StreamHandle);
template void launch_wide_attention<256, DType::kF8>(const AttentionArguments&, int, StreamHandle);

}  // namespace batchmill
