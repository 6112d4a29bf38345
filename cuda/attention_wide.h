// Attention of many rows: 128 packed rows of an item, whose keys and values pass through shared
// memory in steps. A warp has its rows' queries, scores and outputs; where registers allow it has
// 32 rows, so that what it loads of a key serves two matrix products. Included by the sources that
// build it for their types of caches.
#pragma once

#include "cuda/attention_launch.h"
#include "cuda/attention_loader.h"
#include "cuda/attention_shapes.h"
#include "cuda/attention_tile.h"
#include "cuda/kv_bytes.h"
#include "cuda/launch.h"

namespace batchmill {

template <int kDim, DType kKv>
struct WideShape {
  static constexpr int kAtoms = kDim > 128 ? 1 : 2;  // of 16 rows, in each warp
  static constexpr int kWarps = kWideRows / (16 * kAtoms);
  static constexpr int kThreads = kWarps * 32;
  static constexpr int kMinBlocks = kDim > 128 ? 1 : 2;
  static constexpr int kStepKeys = wide_step_keys(kDim, kKv);
  static constexpr int kQueryChunks = kDim / 8;  // 16-byte pieces of a head
  static constexpr int kChunks = KvRows<kDim, kKv>::kChunks;  // of a key
  static constexpr bool kKeepQueries = kDim <= 64;  // in registers
  static constexpr int kTileElements = kStepKeys * KvRows<kDim, kKv>::kElements;
  static constexpr int kQueryElements = kWideRows * kDim;
  // Keys, values, their scales.
  static constexpr int kStageElements =
      2 * kTileElements + kStepKeys * KvRows<kDim, kKv>::kScaleBytes;
  // Queries, then two stages.
  static constexpr int kSharedBytes = wide_shared_bytes(kDim, kKv);
  static_assert(kSharedBytes == 2 * (kQueryElements + 2 * kStageElements));
};

template <int kDim, DType kKv>
struct WideBlock {
  using S = WideShape<kDim, kKv>;
  using Scores = float[S::kAtoms][S::kStepKeys / 8][4];
  using Outputs = float[S::kAtoms][kDim / 8][4];
  using Kept = std::uint32_t[S::kKeepQueries ? kDim / 16 : 1][S::kAtoms][4];

  const AttentionArguments& arguments;
  Bf16* queries;
  Bf16* stages;
  int kv_head;
  int warp = static_cast<int>(threadIdx.x / 32);
  int lane = static_cast<int>(threadIdx.x % 32);

  // Where the step that begins with this key has its keys, and its values: stages alternate.
  __device__ __forceinline__ Bf16* keys(int first_key) const {
    return stages + (first_key / S::kStepKeys & 1) * S::kStageElements;
  }
  __device__ __forceinline__ Bf16* values(int first_key) const {
    return keys(first_key) + S::kTileElements;
  }
  // Of keys, then of values.
  __device__ __forceinline__ float* scales(int first_key) const {
    return reinterpret_cast<float*>(values(first_key) + S::kTileElements);
  }
  __device__ __forceinline__ int first_row(int atom) const {
    return (warp * S::kAtoms + atom) * 16;
  }

  // The first operands of the warp's rows, columns 16 k … 16 k + 15.
  __device__ __forceinline__ void load_queries(std::uint32_t (&a)[S::kAtoms][4], int k) const {
#pragma unroll
    for (int atom = 0; atom < S::kAtoms; ++atom) {
      load_matrices(
          a[atom], place<S::kQueryChunks>(queries, first_row(atom) + lane % 16, k * 2 + lane / 16));
    }
  }

  // scores [rows, keys] += columns 16 k … 16 k + 15 of queries · keys
  __device__ __forceinline__ void add_scores(Scores& scores, const std::uint32_t (&a)[S::kAtoms][4],
                                             Bf16* tile, int k) const {
    if constexpr (kKv == DType::kBF16) {
#pragma unroll
      for (int n = 0; n < S::kStepKeys / 16; ++n) {
        std::uint32_t b[4];
        load_matrices(
            b, place<S::kChunks>(tile, n * 16 + lane % 8 + lane / 16 * 8, k * 2 + lane / 8 % 2));
#pragma unroll
        for (int atom = 0; atom < S::kAtoms; ++atom) {
          multiply_bf16(scores[atom][2 * n], a[atom], b[0], b[1]);
          multiply_bf16(scores[atom][2 * n + 1], a[atom], b[2], b[3]);
        }
      }
    } else {
#pragma unroll
      for (int n = 0; n < S::kStepKeys / 32; ++n) {
        std::uint32_t bytes[4];
        load_matrices(bytes, place<S::kChunks>(tile, n * 32 + lane, k));
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const WideBytes b = widen_bytes<kKv>(bytes[i]);
#pragma unroll
          for (int atom = 0; atom < S::kAtoms; ++atom) {
            multiply_bf16(scores[atom][4 * n + i], a[atom], b.even, b.odd);
          }
        }
      }
    }
  }

  // scores [rows, keys] = queries · keys
  __device__ __forceinline__ void score(Scores& scores, int key, const Kept& kept) const {
    Bf16* tile = keys(key);
#pragma unroll
    for (int atom = 0; atom < S::kAtoms; ++atom) {
#pragma unroll
      for (int n = 0; n < S::kStepKeys / 8; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) scores[atom][n][i] = 0.0f;
      }
    }
#pragma unroll
    for (int k = 0; k < kDim / 16; ++k) {
      std::uint32_t a[S::kAtoms][4];
      if constexpr (S::kKeepQueries) {
#pragma unroll
        for (int atom = 0; atom < S::kAtoms; ++atom) {
#pragma unroll
          for (int i = 0; i < 4; ++i) a[atom][i] = kept[k][atom][i];
        }
      } else {
        load_queries(a, k);
      }
      add_scores(scores, a, tile, k);
    }
    if constexpr (kKv != DType::kBF16) {
#pragma unroll
      for (int n = 0; n < S::kStepKeys / 8; ++n) {
        const float2 scale = *reinterpret_cast<const float2*>(scales(key) + n * 8 + lane % 4 * 2);
#pragma unroll
        for (int atom = 0; atom < S::kAtoms; ++atom) {
#pragma unroll
          for (int i = 0; i < 4; ++i) scores[atom][n][i] *= i % 2 == 0 ? scale.x : scale.y;
        }
      }
    }
  }

  __device__ __forceinline__ void mask(const AttentionItem& item, int first_key,
                                       Scores& scores) const {
#pragma unroll
    for (int atom = 0; atom < S::kAtoms; ++atom) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const SeenKeys seen = seen_keys(arguments, item, first_row(atom) + lane / 4 + half * 8);
#pragma unroll
        for (int n = 0; n < S::kStepKeys / 8; ++n) {
#pragma unroll
          for (int i = 0; i < 2; ++i) {
            const int key = first_key + n * 8 + lane % 4 * 2 + i;
            if (key < seen.begin || key >= seen.end) {
              scores[atom][n][half * 2 + i] = kMinusInfinity;
            }
          }
        }
      }
    }
  }

  // Exponentiates scores; takes the rows' states and outputs to the new maxima.
  __device__ __forceinline__ void weigh(Scores& scores, RowState (&state)[S::kAtoms][2],
                                        Outputs& outputs) const {
    const float scale = arguments.scale * kLog2E;
    float shrink[S::kAtoms][2];
    bool is_higher = false;
#pragma unroll
    for (int atom = 0; atom < S::kAtoms; ++atom) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float old = state[atom][half].maximum;
        float maximum = old;
#pragma unroll
        for (int n = 0; n < S::kStepKeys / 8; ++n) {
          maximum = fmaxf(maximum, fmaxf(scores[atom][n][half * 2], scores[atom][n][half * 2 + 1]));
        }
        maximum = fmaxf(maximum, __shfl_xor_sync(kWholeWarp, maximum, 1));
        maximum = fmaxf(maximum, __shfl_xor_sync(kWholeWarp, maximum, 2));
        const float base = maximum == kMinusInfinity ? 0.0f : maximum * scale;
        shrink[atom][half] = maximum > old ? fast_exp2(old * scale - base) : 1.0f;
        is_higher |= maximum > old;
        float sum = 0.0f;
#pragma unroll
        for (int n = 0; n < S::kStepKeys / 8; ++n) {
#pragma unroll
          for (int i = 0; i < 2; ++i) {
            float& weight = scores[atom][n][half * 2 + i];
            weight = fast_exp2(weight * scale - base);
            sum += weight;
          }
        }
        state[atom][half].maximum = maximum;
        state[atom][half].sum = state[atom][half].sum * shrink[atom][half] + sum;
      }
    }
    // Most steps bring no higher score.
    if (__ballot_sync(kWholeWarp, is_higher) == 0) return;
#pragma unroll
    for (int atom = 0; atom < S::kAtoms; ++atom) {
#pragma unroll
      for (int d = 0; d < kDim / 8; ++d) {
#pragma unroll
        for (int i = 0; i < 4; ++i) outputs[atom][d][i] *= shrink[atom][i / 2];
      }
    }
  }

  // outputs [rows, dim] += weights · values 16 k … 16 k + 15
  __device__ __forceinline__ void add_values(const std::uint32_t (&a)[S::kAtoms][4], Bf16* tile,
                                             int k, Outputs& outputs) const {
    // Of two neighbouring products.
    const auto add = [&](int product, std::uint32_t b0, std::uint32_t b1, std::uint32_t next_b0,
                         std::uint32_t next_b1) {
#pragma unroll
      for (int atom = 0; atom < S::kAtoms; ++atom) {
        multiply_bf16(outputs[atom][product], a[atom], b0, b1);
        multiply_bf16(outputs[atom][product + 1], a[atom], next_b0, next_b1);
      }
    };
#pragma unroll
    for (int c = 0; c < S::kChunks; c += 2) {
      std::uint32_t b[4];
      const int chunk = S::kChunks == 1 ? 0 : c + lane / 16;
      load_matrices_transposed(b, place<S::kChunks>(tile, k * 16 + lane % 16, chunk));
      if constexpr (kKv == DType::kBF16) {
        add(c, b[0], b[1], b[2], b[3]);
      } else {
#pragma unroll
        for (int i = 0; i < 2 && c + i < S::kChunks; ++i) {
          const WideBytes low = widen_bytes<kKv>(b[2 * i]);
          const WideBytes high = widen_bytes<kKv>(b[2 * i + 1]);
          add(2 * (c + i), low.even, high.even, low.odd, high.odd);
        }
      }
    }
  }

  // outputs [rows, dim] += weights · values
  __device__ __forceinline__ void mix(const Scores& weights, int key, Outputs& outputs) const {
#pragma unroll
    for (int k = 0; k < S::kStepKeys / 16; ++k) {
      float2 scale[2] = {{1.0f, 1.0f}, {1.0f, 1.0f}};
      if constexpr (kKv != DType::kBF16) {
#pragma unroll
        for (int n = 0; n < 2; ++n) {
          scale[n] = *reinterpret_cast<const float2*>(scales(key) + S::kStepKeys + (2 * k + n) * 8 +
                                                      lane % 4 * 2);
        }
      }
      std::uint32_t a[S::kAtoms][4];
#pragma unroll
      for (int atom = 0; atom < S::kAtoms; ++atom) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float* pair = &weights[atom][2 * k + i / 2][i % 2 * 2];
          a[atom][i] = pack_bf16(pair[0] * scale[i / 2].x, pair[1] * scale[i / 2].y);
        }
      }
      add_values(a, values(key), k, outputs);
    }
  }

  __device__ __forceinline__ void finish(const AttentionItem& item, RowState (&state)[S::kAtoms][2],
                                         const Outputs& outputs) const {
#pragma unroll
    for (int atom = 0; atom < S::kAtoms; ++atom) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        RowState own = state[atom][half];
        own.sum += __shfl_xor_sync(kWholeWarp, own.sum, 1);
        own.sum += __shfl_xor_sync(kWholeWarp, own.sum, 2);
        own.maximum *= arguments.scale * kLog2E;
        const int row = first_row(atom) + lane / 4 + half * 8;
        if (row >= item.num_rows) continue;
        const float inverse = own.sum > 0.0f ? 1.0f / own.sum : 0.0f;
#pragma unroll
        for (int d = 0; d < kDim / 8; ++d) {
          const float2 pair = pair_of<kKv>(outputs[atom], d, half);
          write_pair<kDim>(arguments, item, kv_head, row, pair_column<kKv>(d, lane),
                           pair.x * inverse, pair.y * inverse);
        }
        if (lane % 4 == 0) write_sums(arguments, item, kv_head, row, own);
      }
    }
  }

  template <typename Loader>
  __device__ __forceinline__ void start_keys(const Loader& loader, const AttentionItem& item,
                                             int key, int block) const {
    loader.start(keys(key), values(key), scales(key), item, key, block);
  }

  // The item is read again where it is seldom used: registers are scarce.
  __device__ __forceinline__ void run(int index) const {
    const AttentionItem item = plan_items(arguments)[index];
    const KeyLoader<kDim, kKv, S::kWarps, S::kStepKeys> loader{arguments, kv_head, warp, lane};
    // Step 1: queries and the first keys are on their way together.
    start_queries<kDim, kWideRows, S::kWarps>(arguments, item, kv_head, warp, lane, queries);
    start_keys(loader, item, item.key_begin, loader.look_up(item, item.key_begin));
    commit_copies();
    int block = loader.look_up(item, item.key_begin + S::kStepKeys);
    const int unmasked_end = whole_end(arguments, item);
    RowState state[S::kAtoms][2];
    Outputs outputs;
#pragma unroll
    for (int atom = 0; atom < S::kAtoms; ++atom) {
      state[atom][0] = state[atom][1] = {kMinusInfinity, 0.0f};
#pragma unroll
      for (int d = 0; d < kDim / 8; ++d) {
#pragma unroll
        for (int i = 0; i < 4; ++i) outputs[atom][d][i] = 0.0f;
      }
    }
    Kept kept = {};
    // Step 2: steps of keys; the next ones are on their way while these are used.
    for (int key = item.key_begin; key < item.key_end; key += S::kStepKeys) {
      wait_for_copies<0>();
      __syncthreads();  // these keys are there, and the ones before are no longer read
      if (key + S::kStepKeys < item.key_end) {
        const int next = key + S::kStepKeys;
        start_keys(loader, item, next, block);
        commit_copies();
        block = loader.look_up(item, key + 2 * S::kStepKeys);
      }
      if constexpr (S::kKeepQueries) {
        if (key == item.key_begin) {
#pragma unroll
          for (int k = 0; k < kDim / 16; ++k) load_queries(kept[k], k);
        }
      }
      Scores scores;
      score(scores, key, kept);
      if (key + S::kStepKeys > unmasked_end) mask(plan_items(arguments)[index], key, scores);
      weigh(scores, state, outputs);
      mix(scores, key, outputs);
    }
    // Step 3: whole rows' sums, then the results.
    finish(plan_items(arguments)[index], state, outputs);
    __syncthreads();  // queries and keys are no longer read
  }
};

// Grid: (blocks, kv heads); a block does every gridDim.x-th item.
template <int kDim, DType kKv>
__global__ void __launch_bounds__(WideShape<kDim, kKv>::kThreads, WideShape<kDim, kKv>::kMinBlocks)
    wide_attention_kernel(AttentionArguments arguments) {
  DYNAMIC_SHARED(Bf16, shared);
  const WideBlock<kDim, kKv> block{arguments, shared, shared + WideShape<kDim, kKv>::kQueryElements,
                                   static_cast<int>(blockIdx.y)};
  for (int i = static_cast<int>(blockIdx.x); i < plan_counts(arguments)->num_wide;
       i += static_cast<int>(gridDim.x)) {
    block.run(i);
  }
}

template <int kDim, DType kKv>
void launch_wide_attention(const AttentionArguments& arguments, int blocks, StreamHandle stream) {
  using S = WideShape<kDim, kKv>;
  launch(wide_attention_kernel<kDim, kKv>,
         dim3(static_cast<unsigned>(blocks), static_cast<unsigned>(arguments.kv_heads)),
         S::kThreads, S::kSharedBytes, stream, arguments);
}

}  // namespace batchmill
