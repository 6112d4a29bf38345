// Attention of few rows, which is bound by reading keys: up to 16 packed rows of an item, whose
// keys the warps of a block share. Keys of the next steps, of the next items too, are always on
// their way. The block that finishes a row's last split combines them. Included by the sources that
// build it for their types of caches.
#pragma once

#include "cuda/attention_launch.h"
#include "cuda/attention_loader.h"
#include "cuda/attention_shapes.h"
#include "cuda/attention_tile.h"
#include "cuda/kv_bytes.h"
#include "cuda/launch.h"

namespace batchmill {

template <int kDim, DType kKv, int kNumStages>
struct NarrowShape {
  static constexpr int kWarps = 4;
  static constexpr int kThreads = kWarps * 32;
  static constexpr int kMinBlocks = kDim > 128 ? 1 : 2;
  static constexpr int kStepKeys = kAttentionKeys;
  static constexpr int kWarpKeys = kStepKeys / kWarps;
  static constexpr int kQueryChunks = kDim / 8;  // 16-byte pieces of a head
  static constexpr int kChunks = KvRows<kDim, kKv>::kChunks;  // of a key
  static constexpr int kTileElements = kStepKeys * KvRows<kDim, kKv>::kElements;
  // Keys, values, the queries of an item that begins with this step, scales of keys and values.
  static constexpr int kUsedElements =
      2 * kTileElements + kNarrowRows * kDim + kStepKeys * KvRows<kDim, kKv>::kScaleBytes;
  // The warps' results lie where keys and values lay.
  static constexpr int kMergedElements = 2 * kWarps * kNarrowRows * (kDim + 2);
  static constexpr int kStageElements =
      kUsedElements > kMergedElements ? kUsedElements : kMergedElements;
  static constexpr int kStages = kNumStages;
  static constexpr int kSharedBytes = narrow_shared_bytes(kDim, kKv, kStages);
  static_assert(kStages >= kFewestNarrowStages);
  static_assert(kSharedBytes == 2 * kStages * kStageElements);
  static_assert(kWarpKeys == 16);
};

template <int kDim, DType kKv, int kNumStages>
struct NarrowBlock {
  using S = NarrowShape<kDim, kKv, kNumStages>;
  using Scores = float[S::kWarpKeys / 8][4];
  using Outputs = float[kDim / 8][4];
  using Queries = std::uint32_t[kDim / 16][4];

  const AttentionArguments& arguments;
  Bf16* stages;
  int* is_last;  // [members of an item]
  int kv_head;
  int warp = static_cast<int>(threadIdx.x / 32);
  int lane = static_cast<int>(threadIdx.x % 32);

  __device__ __forceinline__ Bf16* keys(int stage) const {
    return stages + stage * S::kStageElements;
  }
  __device__ __forceinline__ Bf16* values(int stage) const {
    return keys(stage) + S::kTileElements;
  }
  __device__ __forceinline__ Bf16* queries(int stage) const {
    return values(stage) + S::kTileElements;
  }
  // Of keys, then of values.
  __device__ __forceinline__ float* scales(int stage) const {
    return reinterpret_cast<float*>(queries(stage) + kNarrowRows * kDim);
  }
  // Of the warp's keys n × 8 + 2 t, 2 t + 1, or of their values.
  __device__ __forceinline__ float2 own_scales(int stage, bool of_values, int n) const {
    return *reinterpret_cast<const float2*>(scales(stage) + (of_values ? S::kStepKeys : 0) +
                                            warp * S::kWarpKeys + n * 8 + lane % 4 * 2);
  }

  // scores [16, the warp's keys] = queries · keys
  __device__ __forceinline__ void score(Scores& scores, int stage, const Queries& own) const {
    Bf16* tile = keys(stage);
#pragma unroll
    for (int n = 0; n < 2; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) scores[n][i] = 0.0f;
    }
    if constexpr (kKv == DType::kBF16) {
#pragma unroll
      for (int k = 0; k < kDim / 16; ++k) {
        std::uint32_t b[4];
        load_matrices(b, place<S::kChunks>(tile, warp * S::kWarpKeys + lane % 8 + lane / 16 * 8,
                                           k * 2 + lane / 8 % 2));
        multiply_bf16(scores[0], own[k], b[0], b[1]);
        multiply_bf16(scores[1], own[k], b[2], b[3]);
      }
    } else {
#pragma unroll
      for (int c = 0; c < S::kChunks; c += 2) {
        std::uint32_t bytes[4];
        const int chunk = S::kChunks == 1 ? 0 : c + lane / 16;
        load_matrices(bytes, place<S::kChunks>(tile, warp * S::kWarpKeys + lane % 16, chunk));
#pragma unroll
        for (int i = 0; i < 4 && c + i / 2 < S::kChunks; ++i) {
          const WideBytes b = widen_bytes<kKv>(bytes[i]);
          multiply_bf16(scores[i % 2], own[c + i / 2], b.even, b.odd);
        }
      }
#pragma unroll
      for (int n = 0; n < 2; ++n) {
        const float2 scale = own_scales(stage, false, n);
#pragma unroll
        for (int i = 0; i < 4; ++i) scores[n][i] *= i % 2 == 0 ? scale.x : scale.y;
      }
    }
  }

  __device__ __forceinline__ void mask(const AttentionItem& item, int first_key,
                                       Scores& scores) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const SeenKeys seen = seen_keys(arguments, item, lane / 4 + half * 8);
#pragma unroll
      for (int n = 0; n < 2; ++n) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const int key = first_key + warp * S::kWarpKeys + n * 8 + lane % 4 * 2 + i;
          if (key < seen.begin || key >= seen.end) scores[n][half * 2 + i] = kMinusInfinity;
        }
      }
    }
  }

  // Exponentiates scores; takes the rows' states and outputs to the new maxima.
  __device__ __forceinline__ void weigh(Scores& scores, RowState (&state)[2],
                                        Outputs& outputs) const {
    const float scale = arguments.scale * kLog2E;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float old = state[half].maximum;
      float maximum = fmaxf(fmaxf(scores[0][half * 2], scores[0][half * 2 + 1]),
                            fmaxf(scores[1][half * 2], scores[1][half * 2 + 1]));
      maximum = fmaxf(maximum, old);
      maximum = fmaxf(maximum, __shfl_xor_sync(kWholeWarp, maximum, 1));
      maximum = fmaxf(maximum, __shfl_xor_sync(kWholeWarp, maximum, 2));
      const float base = maximum == kMinusInfinity ? 0.0f : maximum * scale;
      const float shrink = maximum > old ? fast_exp2(old * scale - base) : 1.0f;
      float sum = 0.0f;
#pragma unroll
      for (int n = 0; n < 2; ++n) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          float& weight = scores[n][half * 2 + i];
          weight = fast_exp2(weight * scale - base);
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
  __device__ __forceinline__ void mix(const Scores& weights, int stage, Outputs& outputs) const {
    Bf16* tile = values(stage);
    float2 scale[2] = {{1.0f, 1.0f}, {1.0f, 1.0f}};
    if constexpr (kKv != DType::kBF16) {
#pragma unroll
      for (int n = 0; n < 2; ++n) scale[n] = own_scales(stage, true, n);
    }
    std::uint32_t a[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float* pair = &weights[i / 2][i % 2 * 2];
      a[i] = pack_bf16(pair[0] * scale[i / 2].x, pair[1] * scale[i / 2].y);
    }
#pragma unroll
    for (int c = 0; c < S::kChunks; c += 2) {
      std::uint32_t b[4];
      const int chunk = S::kChunks == 1 ? 0 : c + lane / 16;
      load_matrices_transposed(b, place<S::kChunks>(tile, warp * S::kWarpKeys + lane % 16, chunk));
      if constexpr (kKv == DType::kBF16) {
        multiply_bf16(outputs[c], a, b[0], b[1]);
        multiply_bf16(outputs[c + 1], a, b[2], b[3]);
      } else {
#pragma unroll
        for (int i = 0; i < 2 && c + i < S::kChunks; ++i) {
          const WideBytes low = widen_bytes<kKv>(b[2 * i]);
          const WideBytes high = widen_bytes<kKv>(b[2 * i + 1]);
          multiply_bf16(outputs[2 * (c + i)], a, low.even, high.even);
          multiply_bf16(outputs[2 * (c + i) + 1], a, low.odd, high.odd);
        }
      }
    }
  }

  // Where a warp's result lies: pairs of columns of neighbouring rows fall on different banks.
  static __device__ __forceinline__ int merged_place(int row, int col) {
    if constexpr (kKv == DType::kBF16) {
      constexpr int kMask = kDim >= 32 ? 3 : 1;
      return row * kDim + (col ^ (row & kMask) * 8);
    } else {
      return row * kDim + (col ^ (kDim >= 32 ? (row & 1) * 2 | (row & 2) * 8 : row & 2));
    }
  }

  // Merges what the warps have of the same rows, in the stage that was used last.
  __device__ __forceinline__ void finish(const AttentionItem& item, int stage, RowState (&state)[2],
                                         const Outputs& outputs) const {
    float* merged = reinterpret_cast<float*>(keys(stage));  // [warp][row][dim]
    float* sums = merged + S::kWarps * kNarrowRows * kDim;  // [warp][row][2]
    __syncthreads();  // keys and values are no longer read
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float sum = state[half].sum;
      sum += __shfl_xor_sync(kWholeWarp, sum, 1);
      sum += __shfl_xor_sync(kWholeWarp, sum, 2);
      const int row = lane / 4 + half * 8;
      if (row >= item.num_rows) continue;
      const int at = warp * kNarrowRows + row;
#pragma unroll
      for (int d = 0; d < kDim / 8; ++d) {
        *reinterpret_cast<float2*>(merged + merged_place(at, pair_column<kKv>(d, lane))) =
            pair_of<kKv>(outputs, d, half);
      }
      if (lane % 4 == 0) {
        sums[at * 2] = state[half].maximum * (arguments.scale * kLog2E);
        sums[at * 2 + 1] = sum;
      }
    }
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < item.num_rows * kDim / 2; i += S::kThreads) {
      const int row = i / (kDim / 2);
      const int col = i % (kDim / 2) * 2;
      RowState all{kMinusInfinity, 0.0f};
#pragma unroll
      for (int w = 0; w < S::kWarps; ++w) {
        all.maximum = fmaxf(all.maximum, sums[(w * kNarrowRows + row) * 2]);
      }
      const float base = all.maximum == kMinusInfinity ? 0.0f : all.maximum;
      float low = 0.0f;
      float high = 0.0f;
#pragma unroll
      for (int w = 0; w < S::kWarps; ++w) {
        const int from = w * kNarrowRows + row;
        const float shrink = fast_exp2(sums[from * 2] - base);
        const float2 part = *reinterpret_cast<const float2*>(merged + merged_place(from, col));
        all.sum += sums[from * 2 + 1] * shrink;
        low += part.x * shrink;
        high += part.y * shrink;
      }
      const float inverse = all.sum > 0.0f ? 1.0f / all.sum : 0.0f;
      write_pair<kDim>(arguments, item, kv_head, row, col, low * inverse, high * inverse);
      if (col == 0) write_sums(arguments, item, kv_head, row, all);
    }
  }

  // Whoever is the last to finish a split of a row combines all of them.
  __device__ __forceinline__ void combine(const AttentionItem& item) const {
    const AttentionCounts* counts = plan_counts(arguments);
    const CombineItem* combines =
        plan_combines(arguments) + counts->num_wide_combines + item.combine;
    const int group = counts->group;
    __syncthreads();  // the block has written its results
    if (const int member = static_cast<int>(threadIdx.x); member < item.num_rows / group) {
      int* done = plan_done(arguments) + (item.combine + member) * arguments.kv_heads + kv_head;
      const bool last = add_in_order(done, 1) == combines[member].num_splits - 1;
      if (last) *done = 0;  // for the next layer
      is_last[member] = last ? 1 : 0;
    }
    __syncthreads();
    for (int row = warp; row < item.num_rows; row += S::kWarps) {
      const int member = row / group;
      if (is_last[member] == 0) continue;
      const CombineItem own = combines[member];
      combine_row<kDim, (kDim > 128 ? 8 : 16)>(arguments, own, kv_head, row % group, lane);
    }
  }

  __device__ __forceinline__ void run() const {
    const KeyLoader<kDim, kKv, S::kWarps, S::kStepKeys> loader{arguments, kv_head, warp, lane};
    const AttentionItem* items = plan_items(arguments) + plan_counts(arguments)->num_wide;
    const int count = plan_counts(arguments)->num_narrow;
    const int step = static_cast<int>(gridDim.x);
    const int first = static_cast<int>(blockIdx.x);
    if (first >= count) return;
    // What is brought next, and the item after that.
    int loading = first;
    AttentionItem coming = items[loading];
    AttentionItem after = items[min(loading + step, count - 1)];
    int coming_key = coming.key_begin;
    int coming_block = loader.look_up(coming, coming_key);
    const auto bring = [&](int stage) {
      if (loading < count) {
        if (coming_key == coming.key_begin) {
          start_queries<kDim, kNarrowRows, S::kWarps>(arguments, coming, kv_head, warp, lane,
                                                      queries(stage));
        }
        loader.start(keys(stage), values(stage), scales(stage), coming, coming_key, coming_block);
        coming_key += S::kStepKeys;
        if (coming_key >= coming.key_end) {
          loading += step;
          coming = after;
          coming_key = coming.key_begin;
          after = items[min(loading + step, count - 1)];
        }
        coming_block = loader.look_up(coming, coming_key);
      }
      commit_copies();
    };
#pragma unroll 1
    for (int i = 0; i < S::kStages - 1; ++i) bring(i);
    int stage = 0;
    for (int i = first; i < count; i += step) {
      const AttentionItem item = items[i];
      const int unmasked_end = whole_end(arguments, item);
      RowState state[2] = {{kMinusInfinity, 0.0f}, {kMinusInfinity, 0.0f}};
      Outputs outputs;
#pragma unroll
      for (int d = 0; d < kDim / 8; ++d) {
#pragma unroll
        for (int j = 0; j < 4; ++j) outputs[d][j] = 0.0f;
      }
      Queries own;
      int used = stage;
      for (int key = item.key_begin; key < item.key_end; key += S::kStepKeys) {
        wait_for_copies<S::kStages - 2>();
        __syncthreads();  // this stage is there, and the one before is no longer read
        bring(stage == 0 ? S::kStages - 1 : stage - 1);
        if (key == item.key_begin) {
#pragma unroll
          for (int k = 0; k < kDim / 16; ++k) {
            load_matrices(own[k],
                          place<S::kQueryChunks>(queries(stage), lane % 16, k * 2 + lane / 16));
          }
        }
        Scores scores;
        score(scores, stage, own);
        if (key + S::kStepKeys > unmasked_end) mask(item, key, scores);
        weigh(scores, state, outputs);
        mix(scores, stage, outputs);
        used = stage;
        stage = stage + 1 == S::kStages ? 0 : stage + 1;
      }
      finish(item, used, state, outputs);
      if (item.combine >= 0) combine(item);
    }
  }
};

// Grid: (blocks, kv heads); a block does every gridDim.x-th item.
template <int kDim, DType kKv, int kNumStages>
__global__ void __launch_bounds__(NarrowShape<kDim, kKv, kNumStages>::kThreads,
                                  NarrowShape<kDim, kKv, kNumStages>::kMinBlocks)
    narrow_attention_kernel(AttentionArguments arguments) {
  DYNAMIC_SHARED(Bf16, shared);
  SHARED_ARRAY(int, is_last, kNarrowRows);
  const NarrowBlock<kDim, kKv, kNumStages> block{arguments, shared, is_last,
                                                 static_cast<int>(blockIdx.y)};
  block.run();
}

template <int kDim, DType kKv, int kNumStages>
void launch_narrow_stages(const AttentionArguments& arguments, int blocks, StreamHandle stream) {
  using S = NarrowShape<kDim, kKv, kNumStages>;
  launch(narrow_attention_kernel<kDim, kKv, kNumStages>,
         dim3(static_cast<unsigned>(blocks), static_cast<unsigned>(arguments.kv_heads)),
         S::kThreads, S::kSharedBytes, stream, arguments);
}

template <int kDim, DType kKv>
void launch_narrow_attention(const AttentionArguments& arguments, int blocks, int shared_bytes,
                             StreamHandle stream) {
  constexpr int kMost = most_narrow_stages(kDim);
  // Built where a device may need it.
  if constexpr (narrow_stages(kDim, kKv, kSmallSharedBytes) < kMost) {
    if (narrow_stages(kDim, kKv, shared_bytes) < kMost) {
      return launch_narrow_stages<kDim, kKv, kFewestNarrowStages>(arguments, blocks, stream);
    }
  }
  launch_narrow_stages<kDim, kKv, kMost>(arguments, blocks, stream);
}

}  // namespace batchmill
