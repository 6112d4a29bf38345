// Attention of few rows over caches in bf16.
#include "cuda/attention_narrow.h"

namespace batchmill {

template void launch_narrow_attention<16, DType::kBF16>(const AttentionArguments&, int, int,
                                                        StreamHandle);
template void launch_narrow_attention<32, DType::kBF16>(const AttentionArguments&, int, int,
                                                        StreamHandle);
template void launch_narrow_attention<64, DType::kBF16>(const AttentionArguments&, int, int,
                                                        StreamHandle);
template void launch_narrow_attention<128, DType::kBF16>(const AttentionArguments&, int, int,
                                                         StreamHandle);
template void launch_narrow_attention<256, DType::kBF16>(const AttentionArguments&, int, int,
                                                         StreamHandle);

}  // namespace batchmill
