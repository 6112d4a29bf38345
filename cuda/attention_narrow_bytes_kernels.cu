// Attention of few rows over caches in int8 and FP8.
#include "cuda/attention_narrow.h"

namespace batchmill {

template void launch_narrow_attention<16, DType::kI8>(const AttentionArguments&, int, int,
                                                      StreamHandle);
template void launch_narrow_attention<32, DType::kI8>(const AttentionArguments&, int, int,
                                                      StreamHandle);
template void launch_narrow_attention<64, DType::kI8>(const AttentionArguments&, int, int,
                                                      StreamHandle);
template void launch_narrow_attention<128, DType::kI8>(const AttentionArguments&, int, int,
                                                       StreamHandle);
template void launch_narrow_attention<256, DType::kI8>(const AttentionArguments&, int, int,
                                                       StreamHandle);
template void launch_narrow_attention<16, DType::kF8>(const AttentionArguments&, int, int,
                                                      StreamHandle);
template void launch_narrow_attention<32, DType::kF8>(const AttentionArguments&, int, int,
                                                      StreamHandle);
template void launch_narrow_attention<64, DType::kF8>(const AttentionArguments&, int, int,
                                                      StreamHandle);
template void launch_narrow_attention<128, DType::kF8>(const AttentionArguments&, int, int,
                                                       StreamHandle);
template void launch_narrow_attention<256, DType::kF8>(const AttentionArguments&, int, int,
                                                       StreamHandle);

}  // namespace batchmill
