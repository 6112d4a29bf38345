#include "cuda/attention_kernels.h"

#include <algorithm>
#include <stdexcept>

#include "cuda/attention_launch.h"
#include "cuda/attention_shapes.h"
#include "cuda/attention_tile.h"
#include "cuda/launch.h"

namespace batchmill {
namespace {

constexpr int kCombineWarps = 4;
constexpr int kCombineBlocks = 8;  // that share the rows of an item
constexpr int kMostNarrowBlocks = 2;  // on a multiprocessor, by their registers

// Grid: (blocks, kv heads, kCombineBlocks); a warp per packed row of a wide item.
template <int kDim>
__global__ void __launch_bounds__(kCombineWarps * 32) combine_kernel(AttentionArguments arguments) {
  const int first_row = static_cast<int>(blockIdx.z * kCombineWarps + threadIdx.x / 32);
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int count = plan_counts(arguments)->num_wide_combines;
  for (int i = static_cast<int>(blockIdx.x); i < count; i += static_cast<int>(gridDim.x)) {
    const CombineItem item = plan_combines(arguments)[i];
    for (int row = first_row; row < item.num_rows; row += kCombineBlocks * kCombineWarps) {
      combine_row<kDim, (kDim > 128 ? 2 : 4)>(arguments, item, static_cast<int>(blockIdx.y), row,
                                              lane);
    }
  }
}

template <int kDim, DType kKv>
void launch_items(const AttentionArguments& arguments, const AttentionGrid& grid,
                  StreamHandle stream) {
  if (grid.wide > 0) launch_wide_attention<kDim, kKv>(arguments, grid.wide, stream);
  if (grid.narrow > 0) {
    launch_narrow_attention<kDim, kKv>(arguments, grid.narrow, grid.shared_bytes, stream);
  }
}

template <int kDim>
void launch_dim(const AttentionArguments& arguments, const AttentionGrid& grid,
                StreamHandle stream) {
  switch (arguments.kv) {
    case DType::kBF16:
      launch_items<kDim, DType::kBF16>(arguments, grid, stream);
      break;
    case DType::kI8:
      launch_items<kDim, DType::kI8>(arguments, grid, stream);
      break;
    case DType::kF8:
      launch_items<kDim, DType::kF8>(arguments, grid, stream);
      break;
    case DType::kF32:
      throw std::invalid_argument("attention over a float32 cache is not built");
  }
  if (grid.combines > 0) {
    launch(combine_kernel<kDim>,
           dim3(static_cast<unsigned>(grid.combines), static_cast<unsigned>(arguments.kv_heads),
                kCombineBlocks),
           kCombineWarps * 32, 0, stream, arguments);
  }
}

}  // namespace

AttentionGrid attention_grid(const AttentionPlan& plan, const AttentionArguments& arguments,
                             const AttentionDevice& device, bool is_recordable) {
  const int stages = narrow_stages(arguments.dim, arguments.kv, device.shared_bytes);
  const int narrow_bytes = narrow_shared_bytes(arguments.dim, arguments.kv, stages) +
                           kNarrowStaticBytes + kReservedSharedBytes;
  // A multiprocessor has what one block may have and what the system takes beside it.
  const int narrow_blocks =
      std::clamp((device.shared_bytes + kReservedSharedBytes) / narrow_bytes, 1, kMostNarrowBlocks);
  const auto resident_of = [&](int blocks) {
    return std::max(1, blocks * device.multiprocessors / arguments.kv_heads);
  };
  const int narrow = resident_of(narrow_blocks);
  // A block per wide item: what ends early makes room for the next.
  if (!is_recordable) {
    return {static_cast<int>(plan.wide().size()),
            std::min(narrow, static_cast<int>(plan.narrow().size())),
            static_cast<int>(plan.wide_combines().size()), device.shared_bytes};
  }
  // Decodes are all wide or all narrow, whichever their group makes them.
  const int wide = plan.wide().empty() ? 0 : resident_of(kMostNarrowBlocks);
  return {wide, plan.narrow().empty() ? 0 : narrow, wide, device.shared_bytes};
}

void launch_attention(const AttentionArguments& arguments, const AttentionGrid& grid,
                      StreamHandle stream) {
  switch (arguments.dim) {
    case 16:
      launch_dim<16>(arguments, grid, stream);
      break;
    case 32:
      launch_dim<32>(arguments, grid, stream);
      break;
    case 64:
      launch_dim<64>(arguments, grid, stream);
      break;
    case 128:
      launch_dim<128>(arguments, grid, stream);
      break;
    case 256:
      launch_dim<256>(arguments, grid, stream);
      break;
    default:
      throw std::invalid_argument("attention over heads of this size is not built");
  }
}

}  // namespace batchmill
