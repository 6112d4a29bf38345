#include "cuda/attention_kernels.h"

#include <stdexcept>

#include "cuda/launch.h"

namespace batchmill {
namespace {

constexpr int kWarps = 4;
constexpr int kThreads = kWarps * 32;
// Told to have so few blocks beside each other, ptxas takes the registers it needs.
constexpr int kMinBlocks = 2;
constexpr float kMinusInfinity = -__builtin_huge_valf();

// Shapes of one kernel. Wide: each warp has 16 rows and all keys of a step. Narrow: all warps have
// the same 16 rows, and a quarter of the keys each.
template <int kDim, bool kWide>
struct Shape {
  static constexpr int kRows = kWide ? kWideRows : kNarrowRows;
  static constexpr int kStepKeys = kWide && kDim > 128 ? 32 : kAttentionKeys;
  static constexpr int kWarpKeys = kWide ? kStepKeys : kStepKeys / kWarps;
  static constexpr int kChunks = kDim / 8;  // 16-byte pieces of a head
  static constexpr bool kKeepQueries = kDim <= 128;  // in registers
  static constexpr int kTileElements = kStepKeys * kDim;
  static constexpr int kQueryElements = kRows * kDim;
  // Queries, then two stages of keys and values.
  static constexpr int kSharedBytes = 2 * (kQueryElements + 4 * kTileElements);
  static_assert(kWide ||
                    4 * kWarps * (kNarrowRows * kDim + 2 * kNarrowRows) <= 2 * 4 * kTileElements,
                "the warps' results lie where keys and values lay");
};

// Where piece `chunk` of row `row` lies, so that eight rows' pieces fall on eight 16-byte lanes.
template <int kChunks>
__device__ __forceinline__ Bf16* place(Bf16* tile, int row, int chunk) {
  constexpr int kRowsPerLine = kChunks >= 8 ? 1 : 8 / kChunks;
  constexpr int kMask = kChunks >= 8 ? 7 : kChunks - 1;
  return tile + row * (kChunks * 8) + ((chunk ^ (row / kRowsPerLine & kMask)) << 3);
}

struct RowState {
  float maximum;
  float sum;
};

template <int kDim, bool kWide>
struct AttentionBlock {
  using S = Shape<kDim, kWide>;

  const AttentionArguments& arguments;
  Bf16* queries;
  Bf16* stages;
  int kv_head;
  int warp = static_cast<int>(threadIdx.x / 32);
  int lane = static_cast<int>(threadIdx.x % 32);

  __device__ __forceinline__ Bf16* keys(int stage) const {
    return stages + stage * 2 * S::kTileElements;
  }
  __device__ __forceinline__ Bf16* values(int stage) const {
    return keys(stage) + S::kTileElements;
  }

  __device__ __forceinline__ void start_queries(const AttentionItem& item) const {
    const int group = arguments.heads / arguments.kv_heads;
    const long long row_elements =
        static_cast<long long>(arguments.heads + 2 * arguments.kv_heads) * kDim;
    const Bf16* qkv = static_cast<const Bf16*>(arguments.qkv);
    for (int i = static_cast<int>(threadIdx.x); i < S::kRows * S::kChunks; i += kThreads) {
      const int row = i / S::kChunks;
      const int chunk = i % S::kChunks;
      const bool is_valid = row < item.num_rows;
      const int packed = is_valid ? row : 0;
      const Bf16* source = qkv + (item.first_row + packed / group) * row_elements +
                           (kv_head * group + packed % group) * kDim + chunk * 8;
      copy_async16(place<S::kChunks>(queries, row, chunk), source, is_valid);
    }
  }

  __device__ __forceinline__ void start_keys(const AttentionItem& item, int first_key,
                                             int stage) const {
    const std::int32_t* table =
        arguments.block_tables + static_cast<long long>(item.sequence) * arguments.table_stride;
    const int shift = arguments.block_shift;
    const Bf16* cache = static_cast<const Bf16*>(arguments.cache);
    const long long value_distance = (static_cast<long long>(arguments.kv_heads) << shift) * kDim;
    for (int i = static_cast<int>(threadIdx.x); i < S::kStepKeys * S::kChunks; i += kThreads) {
      const int row = i / S::kChunks;
      const int chunk = i % S::kChunks;
      const int position = first_key + row;
      const bool is_valid = position < item.key_end;
      const int source_position = is_valid ? position : item.key_begin;
      const long long block = table[source_position >> shift];
      const long long slot = source_position & ((1 << shift) - 1);
      const Bf16* source =
          cache + (((block * 2 * arguments.kv_heads + kv_head) << shift) + slot) * kDim + chunk * 8;
      copy_async16(place<S::kChunks>(keys(stage), row, chunk), source, is_valid);
      copy_async16(place<S::kChunks>(values(stage), row, chunk), source + value_distance, is_valid);
    }
  }

  // One of the first operands of 16 rows, columns 16 k … 16 k + 15.
  __device__ __forceinline__ void load_queries(std::uint32_t (&a)[4], int k) const {
    load_matrices(
        a, place<S::kChunks>(queries, (kWide ? warp * 16 : 0) + lane % 16, k * 2 + lane / 16));
  }

  // scores [16, warp keys] = queries · keys
  __device__ __forceinline__ void score(
      float (&scores)[S::kWarpKeys / 8][4], Bf16* tile,
      const std::uint32_t (&kept)[S::kKeepQueries ? kDim / 16 : 1][4]) const {
    const int first = kWide ? 0 : warp * S::kWarpKeys;
#pragma unroll
    for (int n = 0; n < S::kWarpKeys / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) scores[n][i] = 0.0f;
    }
#pragma unroll
    for (int k = 0; k < kDim / 16; ++k) {
      std::uint32_t a[4];
      if constexpr (S::kKeepQueries) {
#pragma unroll
        for (int i = 0; i < 4; ++i) a[i] = kept[k][i];
      } else {
        load_queries(a, k);
      }
#pragma unroll
      for (int n = 0; n < S::kWarpKeys / 16; ++n) {
        std::uint32_t b[4];
        load_matrices(b, place<S::kChunks>(tile, first + n * 16 + lane % 8 + lane / 16 * 8,
                                           k * 2 + lane / 8 % 2));
        multiply_bf16(scores[2 * n], a, b[0], b[1]);
        multiply_bf16(scores[2 * n + 1], a, b[2], b[3]);
      }
    }
  }

  // Masks and exponentiates scores; takes the rows' states and outputs to the new maxima.
  __device__ __forceinline__ void weigh(const AttentionItem& item, int first_key,
                                        float (&scores)[S::kWarpKeys / 8][4], RowState (&state)[2],
                                        float (&outputs)[kDim / 8][4]) const {
    const int group = arguments.heads / arguments.kv_heads;
    const float scale = arguments.scale * 1.44269504f;
    const int first = first_key + (kWide ? 0 : warp * S::kWarpKeys) + lane % 4 * 2;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = (kWide ? warp * 16 : 0) + lane / 4 + half * 8;
      const int position = item.first_position + row / group;
      const int end = arguments.causal ? min(item.key_end, position + 1) : item.key_end;
      const int begin = arguments.window_tokens > 0 ? position - arguments.window_tokens + 1 : 0;
      float maximum = state[half].maximum;
#pragma unroll
      for (int n = 0; n < S::kWarpKeys / 8; ++n) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const int key = first + n * 8 + i;
          float& score = scores[n][half * 2 + i];
          score = key >= begin && key < end ? score * scale : kMinusInfinity;
          maximum = fmaxf(maximum, score);
        }
      }
      maximum = fmaxf(maximum, __shfl_xor_sync(kWholeWarp, maximum, 1));
      maximum = fmaxf(maximum, __shfl_xor_sync(kWholeWarp, maximum, 2));
      const float base = maximum == kMinusInfinity ? 0.0f : maximum;
      const float shrink = fast_exp2(state[half].maximum - base);
      float sum = 0.0f;
#pragma unroll
      for (int n = 0; n < S::kWarpKeys / 8; ++n) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          float& weight = scores[n][half * 2 + i];
          weight = fast_exp2(weight - base);
          sum += weight;
        }
      }
      state[half].maximum = maximum;
      state[half].sum = state[half].sum * shrink + sum;
#pragma unroll
      for (int d = 0; d < kDim / 8; ++d) {
        outputs[d][half * 2] *= shrink;
        outputs[d][half * 2 + 1] *= shrink;
      }
    }
  }

  // outputs [16, dim] += weights · values
  __device__ __forceinline__ void mix(const float (&weights)[S::kWarpKeys / 8][4], Bf16* tile,
                                      float (&outputs)[kDim / 8][4]) const {
    const int first = kWide ? 0 : warp * S::kWarpKeys;
#pragma unroll
    for (int k = 0; k < S::kWarpKeys / 16; ++k) {
      const std::uint32_t a[4] = {pack_bf16(weights[2 * k][0], weights[2 * k][1]),
                                  pack_bf16(weights[2 * k][2], weights[2 * k][3]),
                                  pack_bf16(weights[2 * k + 1][0], weights[2 * k + 1][1]),
                                  pack_bf16(weights[2 * k + 1][2], weights[2 * k + 1][3])};
#pragma unroll
      for (int d = 0; d < kDim / 16; ++d) {
        std::uint32_t b[4];
        load_matrices_transposed(
            b, place<S::kChunks>(tile, first + k * 16 + lane % 16, d * 2 + lane / 16));
        multiply_bf16(outputs[2 * d], a, b[0], b[1]);
        multiply_bf16(outputs[2 * d + 1], a, b[2], b[3]);
      }
    }
  }

  // Two neighbouring columns of a finished row.
  __device__ __forceinline__ void write(const AttentionItem& item, int row, int col, float low,
                                        float high) const {
    if (item.partial >= 0) {
      float* target =
          arguments.partial_outputs +
          (static_cast<long long>(item.partial + row) * arguments.kv_heads + kv_head) * kDim + col;
      *reinterpret_cast<float2*>(target) = make_float2(low, high);
    } else {
      const int group = arguments.heads / arguments.kv_heads;
      Bf16* target = static_cast<Bf16*>(arguments.output) +
                     (static_cast<long long>(item.first_row + row / group) * arguments.heads +
                      kv_head * group + row % group) *
                         kDim +
                     col;
      *reinterpret_cast<unsigned*>(target) = pack_bf16(low, high);
    }
  }
  __device__ __forceinline__ void write_sums(const AttentionItem& item, int row,
                                             RowState state) const {
    if (item.partial < 0) return;
    float* target = arguments.partial_sums +
                    (static_cast<long long>(item.partial + row) * arguments.kv_heads + kv_head) * 2;
    *reinterpret_cast<float2*>(target) = make_float2(state.maximum, state.sum);
  }

  __device__ __forceinline__ void finish_wide(const AttentionItem& item, const RowState (&state)[2],
                                              const float (&outputs)[kDim / 8][4]) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = warp * 16 + lane / 4 + half * 8;
      if (row >= item.num_rows) continue;
      const float inverse = state[half].sum > 0.0f ? 1.0f / state[half].sum : 0.0f;
#pragma unroll
      for (int d = 0; d < kDim / 8; ++d) {
        write(item, row, d * 8 + lane % 4 * 2, outputs[d][half * 2] * inverse,
              outputs[d][half * 2 + 1] * inverse);
      }
      if (lane % 4 == 0) write_sums(item, row, state[half]);
    }
  }

  // Merges what the warps have of the same rows. Their results lie where keys and values lay.
  __device__ __forceinline__ void finish_narrow(const AttentionItem& item,
                                                const RowState (&state)[2],
                                                const float (&outputs)[kDim / 8][4]) const {
    float* merged = reinterpret_cast<float*>(stages);  // [warp][row][dim]
    float* sums = merged + kWarps * kNarrowRows * kDim;  // [warp][row][2]
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = warp * kNarrowRows + lane / 4 + half * 8;
#pragma unroll
      for (int d = 0; d < kDim / 8; ++d) {
        *reinterpret_cast<float2*>(merged + row * kDim + d * 8 + lane % 4 * 2) =
            make_float2(outputs[d][half * 2], outputs[d][half * 2 + 1]);
      }
      if (lane % 4 == 0) {
        sums[row * 2] = state[half].maximum;
        sums[row * 2 + 1] = state[half].sum;
      }
    }
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < item.num_rows * kDim / 2; i += kThreads) {
      const int row = i / (kDim / 2);
      const int col = i % (kDim / 2) * 2;
      RowState all{kMinusInfinity, 0.0f};
#pragma unroll
      for (int w = 0; w < kWarps; ++w) {
        all.maximum = fmaxf(all.maximum, sums[(w * kNarrowRows + row) * 2]);
      }
      const float base = all.maximum == kMinusInfinity ? 0.0f : all.maximum;
      float low = 0.0f;
      float high = 0.0f;
#pragma unroll
      for (int w = 0; w < kWarps; ++w) {
        const int from = w * kNarrowRows + row;
        const float shrink = fast_exp2(sums[from * 2] - base);
        all.sum += sums[from * 2 + 1] * shrink;
        low += merged[from * kDim + col] * shrink;
        high += merged[from * kDim + col + 1] * shrink;
      }
      const float inverse = all.sum > 0.0f ? 1.0f / all.sum : 0.0f;
      write(item, row, col, low * inverse, high * inverse);
      if (col == 0) write_sums(item, row, all);
    }
  }

  __device__ __forceinline__ void run(const AttentionItem& item) const {
    // Step 1: queries and the first keys are on their way together.
    start_queries(item);
    start_keys(item, item.key_begin, 0);
    commit_copies();
    RowState state[2] = {{kMinusInfinity, 0.0f}, {kMinusInfinity, 0.0f}};
    float outputs[kDim / 8][4];
#pragma unroll
    for (int d = 0; d < kDim / 8; ++d) {
#pragma unroll
      for (int i = 0; i < 4; ++i) outputs[d][i] = 0.0f;
    }
    std::uint32_t kept[S::kKeepQueries ? kDim / 16 : 1][4] = {};
    // Step 2: steps of keys; the next ones are on their way while these are used.
    const int num_steps = (item.key_end - item.key_begin + S::kStepKeys - 1) / S::kStepKeys;
    for (int step = 0; step < num_steps; ++step) {
      const int first_key = item.key_begin + step * S::kStepKeys;
      if (step + 1 < num_steps) {
        start_keys(item, first_key + S::kStepKeys, (step + 1) % 2);
        commit_copies();
        wait_for_copies<1>();
      } else {
        wait_for_copies<0>();
      }
      __syncthreads();
      if constexpr (S::kKeepQueries) {
        if (step == 0) {
#pragma unroll
          for (int k = 0; k < kDim / 16; ++k) load_queries(kept[k], k);
        }
      }
      float scores[S::kWarpKeys / 8][4];
      score(scores, keys(step % 2), kept);
      weigh(item, first_key, scores, state, outputs);
      mix(scores, values(step % 2), outputs);
      __syncthreads();
    }
    // Step 3: whole rows' sums, then the results.
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      state[half].sum += __shfl_xor_sync(kWholeWarp, state[half].sum, 1);
      state[half].sum += __shfl_xor_sync(kWholeWarp, state[half].sum, 2);
    }
    if constexpr (kWide) {
      finish_wide(item, state, outputs);
    } else {
      finish_narrow(item, state, outputs);
      __syncthreads();
    }
  }
};

// Grid: (blocks, kv heads); a block does every gridDim.x-th item.
template <int kDim, bool kWide>
__global__ void __launch_bounds__(kThreads, kMinBlocks)
    attention_kernel(AttentionArguments arguments) {
  using S = Shape<kDim, kWide>;
  DYNAMIC_SHARED(Bf16, shared);
  const AttentionBlock<kDim, kWide> block{arguments, shared, shared + S::kQueryElements,
                                          static_cast<int>(blockIdx.y)};
  const auto* counts = static_cast<const AttentionCounts*>(arguments.plan);
  const auto* items = reinterpret_cast<const AttentionItem*>(counts + 1);
  if (!kWide) items += counts->num_wide;
  const int count = kWide ? counts->num_wide : counts->num_narrow;
  for (int i = static_cast<int>(blockIdx.x); i < count; i += static_cast<int>(gridDim.x)) {
    const AttentionItem item = items[i];
    block.run(item);
  }
}

// Grid: (blocks, kv heads); a warp per packed row. A lane has every 32nd group of four columns.
__global__ void __launch_bounds__(kThreads) combine_kernel(AttentionArguments arguments) {
  const int warp = static_cast<int>(threadIdx.x / 32);
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int kv_head = static_cast<int>(blockIdx.y);
  const int group = arguments.heads / arguments.kv_heads;
  const int dim = arguments.dim;
  const auto* counts = static_cast<const AttentionCounts*>(arguments.plan);
  const auto* items = reinterpret_cast<const CombineItem*>(
      reinterpret_cast<const AttentionItem*>(counts + 1) + counts->num_wide + counts->num_narrow);
  const int count = counts->num_combines;
  for (int i = static_cast<int>(blockIdx.x); i < count; i += static_cast<int>(gridDim.x)) {
    const CombineItem item = items[i];
    for (int row = warp; row < item.num_rows; row += kWarps) {
      const long long first =
          static_cast<long long>(item.partial + row) * arguments.kv_heads + kv_head;
      const int stride = item.stride * arguments.kv_heads;
      const auto partial = [&](int split) { return first + split * stride; };
      float maximum = kMinusInfinity;
      for (int split = 0; split < item.num_splits; ++split) {
        maximum = fmaxf(maximum, arguments.partial_sums[partial(split) * 2]);
      }
      float sum = 0.0f;
      for (int split = 0; split < item.num_splits; ++split) {
        const float* sums = arguments.partial_sums + partial(split) * 2;
        if (sums[1] > 0.0f) sum += sums[1] * fast_exp2(sums[0] - maximum);
      }
      const float inverse = sum > 0.0f ? 1.0f / sum : 0.0f;
      Bf16* target = static_cast<Bf16*>(arguments.output) +
                     (static_cast<long long>(item.first_row + row / group) * arguments.heads +
                      kv_head * group + row % group) *
                         dim;
      for (int col = lane * 4; col < dim; col += 32 * 4) {
        float mixed[4] = {};
        for (int split = 0; split < item.num_splits; ++split) {
          const float* sums = arguments.partial_sums + partial(split) * 2;
          if (!(sums[1] > 0.0f)) continue;
          const float share = sums[1] * fast_exp2(sums[0] - maximum) * inverse;
          const float4 part = load_floats(arguments.partial_outputs + partial(split) * dim + col);
          mixed[0] += part.x * share;
          mixed[1] += part.y * share;
          mixed[2] += part.z * share;
          mixed[3] += part.w * share;
        }
        *reinterpret_cast<uint2*>(target + col) =
            make_uint2(pack_bf16(mixed[0], mixed[1]), pack_bf16(mixed[2], mixed[3]));
      }
    }
  }
}

template <int kDim>
void launch_dim(const AttentionArguments& arguments, const AttentionGrid& grid,
                StreamHandle stream) {
  const auto kv_heads = static_cast<unsigned>(arguments.kv_heads);
  if (grid.wide > 0) {
    launch(attention_kernel<kDim, true>, dim3(static_cast<unsigned>(grid.wide), kv_heads), kThreads,
           Shape<kDim, true>::kSharedBytes, stream, arguments);
  }
  if (grid.narrow > 0) {
    launch(attention_kernel<kDim, false>, dim3(static_cast<unsigned>(grid.narrow), kv_heads),
           kThreads, Shape<kDim, false>::kSharedBytes, stream, arguments);
  }
}

}  // namespace

bool is_attention_dim(int dim) {
  return dim == 16 || dim == 32 || dim == 64 || dim == 128 || dim == 256;
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
  if (grid.combines > 0) {
    launch(combine_kernel,
           dim3(static_cast<unsigned>(grid.combines), static_cast<unsigned>(arguments.kv_heads)),
           kThreads, 0, stream, arguments);
  }
}

}  // namespace batchmill
