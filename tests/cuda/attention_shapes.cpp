// Prints the attention kernels' shared memory, for the report on kernels: a line of JSON for each.
#include "cuda/attention_shapes.h"

#include <cstdio>

int main() {
  using namespace batchmill;
  for (const int dim : {16, 32, 64, 128, 256}) {
    for (const DType kv : {DType::kBF16, DType::kI8, DType::kF8}) {
      const int type = static_cast<int>(kv);
      std::printf("{\"dim\": %d, \"kv\": %d, \"wide_bytes\": %d, \"stage_bytes\": %d, ", dim, type,
                  wide_shared_bytes(dim, kv), narrow_stage_bytes(dim, kv));
      std::printf("\"static_bytes\": %d, \"runs\": {", kNarrowStaticBytes);
      // Limits of compute capabilities 8.6, 8.0, 9.0: stages of few rows' kernel; 0: refused.
      for (const int limit : {kSmallSharedBytes, kMediumSharedBytes, 227 << 10}) {
        const bool runs = least_attention_shared_bytes(dim, kv) <= limit;
        std::printf("%s\"%d\": %d", limit == kSmallSharedBytes ? "" : ", ", limit,
                    runs ? narrow_stages(dim, kv, limit) : 0);
      }
      std::printf("}}\n");
    }
  }
  return 0;
}
