// What the attention kernels have in common besides the way of keys and queries: the plan, masks,
// results and how those of splits are combined. Included by kernels alone.
#pragma once

#include "cuda/attention_kernels.h"
#include "cuda/devrt.h"

namespace batchmill {

inline constexpr float kMinusInfinity = -__builtin_huge_valf();
inline constexpr float kLog2E = 1.44269504f;

struct RowState {
  float maximum;
  float sum;
};

__device__ __forceinline__ const AttentionCounts* plan_counts(const AttentionArguments& arguments) {
  return static_cast<const AttentionCounts*>(arguments.plan);
}
__device__ __forceinline__ const AttentionItem* plan_items(const AttentionArguments& arguments) {
  return reinterpret_cast<const AttentionItem*>(plan_counts(arguments) + 1);
}
// Those of wide items, then those of narrow ones.
__device__ __forceinline__ const CombineItem* plan_combines(const AttentionArguments& arguments) {
  const AttentionCounts* counts = plan_counts(arguments);
  return reinterpret_cast<const CombineItem*>(plan_items(arguments) + counts->num_wide +
                                              counts->num_narrow);
}

// How many splits of each combine of narrow items are done, [combine][kv head].
__device__ __forceinline__ int* plan_done(const AttentionArguments& arguments) {
  const AttentionCounts* counts = plan_counts(arguments);
  return reinterpret_cast<int*>(const_cast<CombineItem*>(
      plan_combines(arguments) + counts->num_wide_combines + counts->num_narrow_combines));
}

// The keys that a packed row sees are [begin, end).
struct SeenKeys {
  int begin;
  int end;
};
__device__ __forceinline__ SeenKeys seen_keys(const AttentionArguments& arguments,
                                              const AttentionItem& item, int row) {
  const int position = item.first_position + row / plan_counts(arguments)->group;
  const int end = arguments.causal ? min(item.key_end, position + 1) : item.key_end;
  const int begin = arguments.window_tokens > 0 ? position - arguments.window_tokens + 1 : 0;
  return {begin, end};
}
// All rows of the item see all keys before this one. In windows none is said to be.
__device__ __forceinline__ int whole_end(const AttentionArguments& arguments,
                                         const AttentionItem& item) {
  return arguments.window_tokens > 0 ? 0 : seen_keys(arguments, item, 0).end;
}

__device__ __forceinline__ Bf16* output_row(const AttentionArguments& arguments, int first_row,
                                            int row, int kv_head) {
  const int group = plan_counts(arguments)->group;
  return static_cast<Bf16*>(arguments.output) +
         (static_cast<long long>(first_row + row / group) * arguments.heads + kv_head * group +
          row % group) *
             arguments.dim;
}
__device__ __forceinline__ long long partial_row(const AttentionArguments& arguments, int row,
                                                 int kv_head) {
  return static_cast<long long>(row) * arguments.kv_heads + kv_head;
}

// A lane's sums of a row, as kDim ÷ 8 pairs of neighbouring columns. `outputs` are the sums of
// matrix products, two of each for rows `half`; those of bytes have every other column (see
// kv_bytes.h).
template <DType kKv>
__device__ __forceinline__ int pair_column(int pair, int lane) {
  return kKv == DType::kBF16 ? pair * 8 + lane % 4 * 2
                             : pair / 2 * 16 + lane % 4 * 4 + pair % 2 * 2;
}
template <DType kKv, int kProducts>
__device__ __forceinline__ float2 pair_of(const float (&outputs)[kProducts][4], int pair,
                                          int half) {
  if constexpr (kKv == DType::kBF16) {
    return make_float2(outputs[pair][half * 2], outputs[pair][half * 2 + 1]);
  } else {
    return make_float2(outputs[pair / 2 * 2][half * 2 + pair % 2],
                       outputs[pair / 2 * 2 + 1][half * 2 + pair % 2]);
  }
}

// Two neighbouring columns of a finished row.
template <int kDim>
__device__ __forceinline__ void write_pair(const AttentionArguments& arguments,
                                           const AttentionItem& item, int kv_head, int row, int col,
                                           float low, float high) {
  if (item.partial >= 0) {
    float* target = arguments.partial_outputs +
                    partial_row(arguments, item.partial + row, kv_head) * kDim + col;
    *reinterpret_cast<float2*>(target) = make_float2(low, high);
  } else {
    Bf16* target = output_row(arguments, item.first_row, row, kv_head) + col;
    *reinterpret_cast<unsigned*>(target) = pack_bf16(low, high);
  }
}
__device__ __forceinline__ void write_sums(const AttentionArguments& arguments,
                                           const AttentionItem& item, int kv_head, int row,
                                           RowState state) {
  if (item.partial < 0) return;
  float* target = arguments.partial_sums + partial_row(arguments, item.partial + row, kv_head) * 2;
  *reinterpret_cast<float2*>(target) = make_float2(state.maximum, state.sum);
}

// One row of a combine item, by a warp. A lane has four columns of every kParts-th split, and more
// of them if the head is wider than a warp's 128 columns.
template <int kDim, int kBatch>
__device__ __forceinline__ void combine_row(const AttentionArguments& arguments,
                                            const CombineItem& item, int kv_head, int row,
                                            int lane) {
  constexpr int kParts = kDim < 128 ? 128 / kDim : 1;
  constexpr int kPieces = kDim > 128 ? kDim / 128 : 1;
  const int part = lane / (32 / kParts);
  const int col = lane % (32 / kParts) * 4;
  const long long first = partial_row(arguments, item.partial + row, kv_head);
  const int stride = item.stride * arguments.kv_heads;
  // Step 1: the row's maximum and sum over all splits.
  RowState all{kMinusInfinity, 0.0f};
#pragma unroll 2
  for (int split = lane; split < item.num_splits; split += 32) {
    all.maximum = fmaxf(
        all.maximum, arguments.partial_sums[(first + static_cast<long long>(split) * stride) * 2]);
  }
  all.maximum = warp_max(all.maximum);
  const float base = all.maximum == kMinusInfinity ? 0.0f : all.maximum;
  const auto weight_of = [&](int split) {
    if (split >= item.num_splits) return 0.0f;
    const float2 sums = *reinterpret_cast<const float2*>(
        arguments.partial_sums + (first + static_cast<long long>(split) * stride) * 2);
    return sums.y * fast_exp2(sums.x - base);
  };
#pragma unroll 2
  for (int split = lane; split < item.num_splits; split += 32) all.sum += weight_of(split);
  all.sum = warp_sum(all.sum);
  const float inverse = all.sum > 0.0f ? 1.0f / all.sum : 0.0f;
  // Step 2: the outputs by their splits' shares; kBatch of them are on their way at a time.
  float mixed[kPieces][4] = {};
  for (int begin = 0; begin < item.num_splits; begin += 32) {
    const float own_share = weight_of(begin + lane) * inverse;
    const int count = min(32, item.num_splits - begin);
#pragma unroll 1
    for (int i = 0; i < count; i += kBatch * kParts) {
      float4 values[kBatch][kPieces];
#pragma unroll
      for (int j = 0; j < kBatch; ++j) {
        // Behind the last split: that one, with no share.
        const int split = begin + min(i + j * kParts + part, count - 1);
        const float* source = arguments.partial_outputs +
                              (first + static_cast<long long>(split) * stride) * kDim + col;
#pragma unroll
        for (int piece = 0; piece < kPieces; ++piece) {
          values[j][piece] = load_floats(source + piece * 128);
        }
      }
#pragma unroll
      for (int j = 0; j < kBatch; ++j) {
        const int from = i + j * kParts + part;
        const float shared = __shfl_sync(kWholeWarp, own_share, from);
        const float share = from < count ? shared : 0.0f;
#pragma unroll
        for (int piece = 0; piece < kPieces; ++piece) {
          mixed[piece][0] += values[j][piece].x * share;
          mixed[piece][1] += values[j][piece].y * share;
          mixed[piece][2] += values[j][piece].z * share;
          mixed[piece][3] += values[j][piece].w * share;
        }
      }
    }
  }
#pragma unroll
  for (int distance = 16; distance >= 32 / kParts; distance /= 2) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      mixed[0][i] += __shfl_xor_sync(kWholeWarp, mixed[0][i], distance);
    }
  }
  if (part != 0) return;
  Bf16* target = output_row(arguments, item.first_row, row, kv_head) + col;
#pragma unroll
  for (int piece = 0; piece < kPieces; ++piece) {
    *reinterpret_cast<uint2*>(target + piece * 128) = make_uint2(
        pack_bf16(mixed[piece][0], mixed[piece][1]), pack_bf16(mixed[piece][2], mixed[piece][3]));
  }
}

}  // namespace batchmill
