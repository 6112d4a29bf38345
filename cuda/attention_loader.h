// The way of keys, values and queries into shared memory. Included by kernels alone.
//
// Tiles are [rows][dim] with the 16-byte pieces of a row exchanged (see place()), so that matrix
// loads find each of their eight rows on other banks. They are counted in 16-bit elements, as
// matrix loads see them; of bytes there are two in each.
#pragma once

#include "cuda/attention_kernels.h"
#include "cuda/attention_tile.h"
#include "cuda/devrt.h"

namespace batchmill {

// A step's keys or values in shared memory, and a part of a block in the cache: rows of 16-byte
// pieces. Behind a part's rows of bytes lie their scales.
template <int kDim, DType kKv>
struct KvRows {
  static constexpr bool kAreBytes = kKv != DType::kBF16;
  static constexpr int kElements = kAreBytes ? kDim / 2 : kDim;  // of 16 bits
  static constexpr int kChunks = kElements / 8;
  static constexpr int kScaleBytes = kAreBytes ? 4 : 0;  // of a row
  // What rows and parts of the cache are multiples of: 32 bits count the units of a layer.
  static constexpr int kUnitElements = kAreBytes ? 8 : kElements;
  static constexpr int kRowUnits = kElements / kUnitElements;
};

// Where piece `chunk` of row `row` lies, so that eight rows' pieces fall on eight 16-byte lanes.
template <int kChunks>
__device__ __forceinline__ Bf16* place(Bf16* tile, int row, int chunk) {
  constexpr int kRowsPerLine = kChunks >= 8 ? 1 : 8 / kChunks;
  constexpr int kMask = kChunks >= 8 ? 7 : kChunks - 1;
  return tile + row * (kChunks * 8) + ((chunk ^ (row / kRowsPerLine & kMask)) << 3);
}

// Brings kStepKeys keys and values from the paged cache to shared memory, in 16-byte pieces. A
// thread brings the same piece of every row that it brings. Which rows of the cache they are the
// lanes of a warp look up for each other, one each, and a step ahead: what look_up() returns is not
// used before start().
template <int kDim, DType kKv, int kWarps, int kStepKeys>
struct KeyLoader {
  using Rows = KvRows<kDim, kKv>;
  static constexpr int kChunks = Rows::kChunks;
  // That a warp brings at once.
  static constexpr int kWarpRows =
      32 / kChunks < kStepKeys / kWarps ? 32 / kChunks : kStepKeys / kWarps;
  static constexpr int kBlockRows = kWarps * kWarpRows;
  static constexpr int kRounds = kStepKeys / kBlockRows;
  static constexpr int kOwnKeys = kWarpRows * kRounds;  // that a warp looks up
  static_assert(kStepKeys % kBlockRows == 0 && kOwnKeys <= 16, "half a warp looks the rows up");

  const AttentionArguments& arguments;
  int kv_head;
  int warp;
  int lane;

  // Of the key that this lane looks up, counted from the step's first.
  __device__ __forceinline__ int own_key() const {
    const int index = lane % kOwnKeys;
    return index / kWarpRows * kBlockRows + warp * kWarpRows + index % kWarpRows;
  }

  // The block of that key.
  __device__ __forceinline__ int look_up(const AttentionItem& item, int first_key) const {
    const int position = min(first_key + own_key(), item.key_end - 1);
    return arguments.block_tables[static_cast<long long>(item.sequence) * arguments.table_stride +
                                  (position >> arguments.block_shift)];
  }

  // `scales`: [K, V][kStepKeys], of bytes alone.
  __device__ __forceinline__ void start(Bf16* keys, Bf16* values, float* scales,
                                        const AttentionItem& item, int first_key, int block) const {
    const int shift = arguments.block_shift;
    const int position = first_key + own_key();
    const bool is_valid = position < item.key_end;
    const int slot = position & ((1 << shift) - 1);
    const int part_rows = Rows::kRowUnits << shift;
    const int part = part_rows + (Rows::kScaleBytes << shift) / (2 * Rows::kUnitElements);
    const int own_part = (block * 2 * arguments.kv_heads + kv_head) * part;
    const int looked_up = is_valid ? own_part + slot * Rows::kRowUnits : -1;
    const int chunk = lane % kChunks;
    const Bf16* cache = static_cast<const Bf16*>(arguments.cache) + chunk * 8;
    const long long value_distance =
        static_cast<long long>(arguments.kv_heads * part) * Rows::kUnitElements;
#pragma unroll
    for (int round = 0; round < kRounds; ++round) {
      const int row = round * kBlockRows + warp * kWarpRows + lane / kChunks;
      const int cache_row = __shfl_sync(kWholeWarp, looked_up, round * kWarpRows + lane / kChunks);
      if (kWarpRows * kChunks < 32 && lane >= kWarpRows * kChunks) continue;
      const Bf16* source = cache + static_cast<long long>(max(cache_row, 0)) * Rows::kUnitElements;
      copy_async16(place<kChunks>(keys, row, chunk), source, cache_row >= 0);
      copy_async16(place<kChunks>(values, row, chunk), source + value_distance, cache_row >= 0);
    }
    if constexpr (Rows::kAreBytes) {
      // Some lanes have keys' scales, as many have values'.
      const int which = lane / kOwnKeys;
      if (which >= 2) return;
      const Bf16* source = static_cast<const Bf16*>(arguments.cache) +
                           static_cast<long long>(is_valid ? own_part + part_rows : 0) * 8;
      copy_async4(scales + which * kStepKeys + own_key(),
                  source + slot * 2 + which * value_distance, is_valid);
    }
  }
};

// The queries of an item's rows, by all warps; zeros behind the last row. Where a row lies lanes
// work out for each other, as in KeyLoader.
template <int kDim, int kRows, int kWarps>
__device__ __forceinline__ void start_queries(const AttentionArguments& arguments,
                                              const AttentionItem& item, int kv_head, int warp,
                                              int lane, Bf16* queries) {
  constexpr int kChunks = kDim / 8;
  constexpr int kWarpRows = 32 / kChunks;
  constexpr int kBlockRows = kWarps * kWarpRows;
  constexpr int kRounds = kRows > kBlockRows ? kRows / kBlockRows : 1;
  static_assert(kWarpRows * kRounds <= 32, "a lane works one row out");
  const int group = plan_counts(arguments)->group;
  const int index = lane % (kWarpRows * kRounds);
  const int own = index / kWarpRows * kBlockRows + warp * kWarpRows + index % kWarpRows;
  const int own_head = (item.first_row + own / group) * (arguments.heads + 2 * arguments.kv_heads) +
                       kv_head * group + own % group;
  const int worked_out = own < item.num_rows ? own_head : -1;
  const int chunk = lane % kChunks;
  const Bf16* qkv = static_cast<const Bf16*>(arguments.qkv) + chunk * 8;
#pragma unroll
  for (int round = 0; round < kRounds; ++round) {
    const int row = round * kBlockRows + warp * kWarpRows + lane / kChunks;
    const int head = __shfl_sync(kWholeWarp, worked_out, round * kWarpRows + lane / kChunks);
    if (row >= kRows) continue;
    copy_async16(place<kChunks>(queries, row, chunk),
                 qkv + static_cast<long long>(max(head, 0)) * kDim, head >= 0);
  }
}

}  // namespace batchmill
