// Attention of many rows over caches in bf16.
#include "cuda/attention_wide.h"

namespace batchmill {

template void launch_wide_attention<16, DType::kBF16>(const AttentionArguments&, int, StreamHandle);
template void launch_wide_attention<32, DType::kBF16>(const AttentionArguments&, int, StreamHandle);
template void launch_wide_attention<64, DType::kBF16>(const AttentionArguments&, int, StreamHandle);
template void launch_wide_attention<128, DType::kBF16>(const AttentionArguments&, int,
                                                       StreamHandle);
template void launch_wide_attention<256, DType::kBF16>(const AttentionArguments&, int,
                                                       StreamHandle);

}  // namespace batchmill
