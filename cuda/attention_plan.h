// What the attention kernels do in a step, planned on the host once per step and rule: which query
// rows attend to which keys, in which block. A plain value; no device is involved.
//
// Rows are packed: packed row r of an item is query token r ÷ group of it, head r % group of the kv
// head's group. An item has either so few packed rows that four warps share its keys (narrow), or
// its warps share its rows (wide). Keys are split at fixed positions, so what a row sums, and in
// which order, depends on its position and on how many rows its own sequence brings to the step,
// not on other sequences.
//
// Neighbouring decodes whose tables begin with the same blocks share items for whole splits of
// those keys: a narrow item then holds rows of several sequences, and the keys are read once for
// all of them. Splits and sums are those of each sequence alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace batchmill {

inline constexpr std::int32_t kWideRows = 128;
inline constexpr std::int32_t kNarrowRows = 16;
inline constexpr std::int32_t kAttentionKeys = 64;  // a kernel's step; splits are multiples of it
inline constexpr std::int32_t kNarrowSplitKeys = 256;
inline constexpr std::int32_t kWideSplitBlocks = 64;
inline constexpr std::int32_t kFewestWideSplitKeys = 1024;
// Of rows that a sequence brings as that many wide tiles: so many splits that kWideSplitBlocks have
// work on each kv head, but none of fewer keys than that.
std::int32_t wide_split_keys(std::int32_t num_tiles, std::int32_t context);

struct alignas(16) AttentionItem {
  std::int32_t first_row;  // of the batch: the first query token
  std::int32_t num_rows;  // packed, at most kWideRows or kNarrowRows
  std::int32_t first_position;  // of the first query token; of shared keys: behind the last one
  std::int32_t sequence;  // row of the block tables
  std::int32_t key_begin;  // a multiple of kAttentionKeys
  std::int32_t key_end;
  std::int32_t partial;  // -1: writes the result; else the first row of partial results
  std::int32_t combine;  // narrow and split: the first combine item that waits for it
};

// Rows whose keys were split: num_rows packed rows, num_splits times, `stride` rows further each
// time. Those of wide items have an item's rows, those of narrow ones a token's.
struct CombineItem {
  std::int32_t first_row;
  std::int32_t num_rows;
  std::int32_t partial;
  std::int32_t num_splits;
  std::int32_t stride;
};

struct AttentionRows {
  std::span<const std::int32_t> cu_seqlens;  // [S + 1]
  std::span<const std::int32_t> context_lens;  // [S]
  std::int32_t group = 1;  // query heads per kv head, at most kWideRows
  std::int32_t window_tokens = 0;  // > 0: a row sees itself and window − 1 tokens before it
  bool causal = true;
  std::span<const std::int32_t> block_tables = {};  // [S, max_blocks]; empty: nothing is shared
  std::int32_t max_blocks = 0;
  std::int32_t block_tokens = 1;
  std::int32_t kv_heads = 1;
};

// How the device finds it: this, the wide items, the narrow ones, the combines of either, then for
// each combine of narrow items and kv head how many of its splits are done.
struct AttentionCounts {
  std::int32_t num_wide;
  std::int32_t num_narrow;
  std::int32_t num_wide_combines;
  std::int32_t num_narrow_combines;
  std::int32_t group;
  std::int32_t unused[3];  // items lie at multiples of 16 bytes
};

class AttentionPlan {
 public:
  // Of sequences from `first` on: of all, unless that takes more than so many partial rows, but of
  // one at least. Returns the first sequence that is not in it.
  std::size_t make(const AttentionRows& rows, std::size_t first = 0,
                   std::int32_t most_partial_rows = std::numeric_limits<std::int32_t>::max());

  std::size_t packed_bytes() const;
  void pack(std::byte* target) const;

  std::span<const AttentionItem> wide() const { return wide_; }
  std::span<const AttentionItem> narrow() const { return narrow_; }
  std::span<const CombineItem> wide_combines() const { return wide_combines_; }
  std::int32_t num_partial_rows() const { return num_partial_rows_; }
  std::int64_t num_shared_keys() const { return num_shared_keys_; }  // that were not read once more

 private:
  // Of one sequence, or several that share keys; returns the first behind them.
  std::size_t add_sequences(const AttentionRows& rows, std::size_t first);
  // split_keys: of a narrow tile kNarrowSplitKeys.
  void add_tile(const AttentionRows& rows, std::int32_t sequence, std::int32_t first_row,
                std::int32_t num_tokens, bool is_narrow, std::int32_t split_keys);
  // Decodes from `first` on, and how many leading keys they share.
  struct SharedRun {
    std::int32_t num_sequences = 1;
    std::int32_t num_keys = 0;
  };
  static SharedRun find_shared(const AttentionRows& rows, std::size_t first);
  void add_shared(const AttentionRows& rows, std::size_t first, const SharedRun& run);

  std::vector<AttentionItem> wide_;
  std::vector<AttentionItem> narrow_;
  std::vector<CombineItem> wide_combines_;
  std::vector<CombineItem> narrow_combines_;
  std::int32_t group_ = 1;
  std::int32_t kv_heads_ = 1;
  std::int32_t num_partial_rows_ = 0;
  std::int64_t num_shared_keys_ = 0;
};

}  // namespace batchmill
