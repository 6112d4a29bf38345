#include "engine/cpu/kernels.h"

#include <algorithm>

#include "engine/cpu/kernel_tables.h"

namespace batchmill {

const Kernels& kernels_for(InstructionSet set) {
  switch (set) {
    case InstructionSet::kAvx512Bf16:
      return avx512_bf16_kernels();
    case InstructionSet::kAvx512Vnni:
      return avx512_vnni_kernels();
    case InstructionSet::kAvx512:
      return avx512_kernels();
    case InstructionSet::kAvx2:
      return avx2_kernels();
    case InstructionSet::kBaseline:
      break;
  }
  return baseline_kernels();
}

std::int32_t attention_tile_queries(std::int32_t group_heads) {
  return std::max(1, kAttentionTileRows / group_heads);
}

std::size_t attention_scratch_floats(std::int32_t group_heads, std::int32_t head_dim) {
  const auto rows = static_cast<std::size_t>(std::max(kAttentionTileRows, group_heads));
  const auto width = static_cast<std::size_t>(head_dim);
  // Queries and sums [rows, head_dim], one row of work, then maxima, denominators and two numbers
  // per query.
  return (2 * rows + 1) * width +
         4 * static_cast<std::size_t>(attention_row_floats(static_cast<std::int32_t>(rows)));
}

}  // namespace batchmill
