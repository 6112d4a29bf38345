// Shared memory that a block of the attention kernels has, by head size and type of cache: for the
// kernels, and for whoever asks beforehand whether a device offers as much. Plain functions.
#pragma once

#include <algorithm>
#include <cstdint>

#include "cuda/attention_plan.h"
#include "engine/tensor.h"

namespace batchmill {

// What compute capabilities 8.6, 8.9 and 12.0 let a block have, and 8.0; 9.0 and 10.0 have 227 KiB.
inline constexpr std::int32_t kSmallSharedBytes = 99 << 10;
inline constexpr std::int32_t kMediumSharedBytes = 163 << 10;
// Of a multiprocessor's, taken by the system for each block, beside what the block has.
inline constexpr std::int32_t kReservedSharedBytes = 1 << 10;

// Of a key or a value, in 16-bit elements, and of its scale.
constexpr std::int32_t kv_row_elements(std::int32_t dim, DType kv) {
  return kv == DType::kBF16 ? dim : dim / 2;
}
constexpr std::int32_t kv_row_scale_bytes(DType kv) { return kv == DType::kBF16 ? 0 : 4; }

// Many rows: as many scores as registers hold beside the outputs; bytes take some to be made wider.
constexpr std::int32_t wide_step_keys(std::int32_t dim, DType kv) {
  return dim > 128 || (dim == 128 && kv != DType::kBF16) ? kAttentionKeys / 2 : kAttentionKeys;
}
// Queries, then two stages of keys, values and their scales.
constexpr std::int32_t wide_shared_bytes(std::int32_t dim, DType kv) {
  const std::int32_t stage =
      wide_step_keys(dim, kv) * (4 * kv_row_elements(dim, kv) + 2 * kv_row_scale_bytes(kv));
  return 2 * kWideRows * dim + 2 * stage;
}

// Few rows: keys, values, queries and scales; the results of four warps lie where these lay.
constexpr std::int32_t narrow_stage_bytes(std::int32_t dim, DType kv) {
  constexpr std::int32_t kWarps = 4;
  const std::int32_t used =
      kAttentionKeys * (4 * kv_row_elements(dim, kv) + 2 * kv_row_scale_bytes(kv)) +
      2 * kNarrowRows * dim;
  return std::max(used, 4 * kWarps * kNarrowRows * (dim + 2));
}
// As many as keep memory busy, and as few as there must be: one is used while others are on their
// way.
constexpr std::int32_t most_narrow_stages(std::int32_t dim) {
  return dim >= 128 ? 3 : dim == 64 ? 5 : 6;
}
inline constexpr std::int32_t kFewestNarrowStages = 2;
inline constexpr std::int32_t kNarrowStaticBytes = 128;  // numbers of rows, up to a border
constexpr std::int32_t narrow_shared_bytes(std::int32_t dim, DType kv, std::int32_t stages) {
  return stages * narrow_stage_bytes(dim, kv);
}
// Of a device that lets a block have so much.
constexpr std::int32_t narrow_stages(std::int32_t dim, DType kv, std::int32_t shared_bytes) {
  const std::int32_t most = most_narrow_stages(dim);
  const bool fits = narrow_shared_bytes(dim, kv, most) + kNarrowStaticBytes <= shared_bytes;
  return fits ? most : kFewestNarrowStages;
}

// The least that a block must be allowed to have.
constexpr std::int32_t least_attention_shared_bytes(std::int32_t dim, DType kv) {
  return std::max(wide_shared_bytes(dim, kv),
                  narrow_shared_bytes(dim, kv, kFewestNarrowStages) + kNarrowStaticBytes);
}

}  // namespace batchmill
