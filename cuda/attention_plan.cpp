#include "cuda/attention_plan.h"

#include <algorithm>
#include <cstring>

namespace batchmill {
namespace {

bool is_decode(const AttentionRows& rows, std::size_t sequence) {
  return rows.cu_seqlens[sequence + 1] - rows.cu_seqlens[sequence] == 1;
}

// Leading keys that two sequences have in the same blocks, in whole splits, without either one's
// last key.
std::int32_t shared_keys(const AttentionRows& rows, std::size_t a, std::size_t b) {
  const auto width = static_cast<std::size_t>(rows.max_blocks);
  const auto table_of = [&](std::size_t s) { return rows.block_tables.subspan(s * width, width); };
  const std::int32_t most = std::min(rows.context_lens[a], rows.context_lens[b]) - 1;
  const std::int32_t blocks = std::min(most / rows.block_tokens, rows.max_blocks);
  const auto begin = table_of(a).begin();
  const auto end = std::mismatch(begin, begin + blocks, table_of(b).begin()).first;
  const auto keys = static_cast<std::int32_t>(end - begin) * rows.block_tokens;
  return keys / kNarrowSplitKeys * kNarrowSplitKeys;
}

}  // namespace

std::int32_t wide_split_keys(std::int32_t num_tiles, std::int32_t context) {
  const std::int32_t num_splits = std::max(kWideSplitBlocks / num_tiles, 1);
  return ((context - 1) / num_splits / kFewestWideSplitKeys + 1) * kFewestWideSplitKeys;
}

std::size_t AttentionPlan::make(const AttentionRows& rows, std::size_t first,
                                std::int32_t most_partial_rows) {
  wide_.clear();
  narrow_.clear();
  wide_combines_.clear();
  narrow_combines_.clear();
  group_ = rows.group;
  kv_heads_ = rows.kv_heads;
  num_partial_rows_ = 0;
  num_shared_keys_ = 0;
  std::size_t next = first;
  while (next < rows.context_lens.size()) {
    const std::size_t num_wide = wide_.size();
    const std::size_t num_narrow = narrow_.size();
    const std::size_t num_wide_combines = wide_combines_.size();
    const std::size_t num_narrow_combines = narrow_combines_.size();
    const std::int32_t num_partial_rows = num_partial_rows_;
    const std::int64_t num_shared_keys = num_shared_keys_;
    const std::size_t end = add_sequences(rows, next);
    if (num_partial_rows_ > most_partial_rows && next > first) {
      wide_.resize(num_wide);
      narrow_.resize(num_narrow);
      wide_combines_.resize(num_wide_combines);
      narrow_combines_.resize(num_narrow_combines);
      num_partial_rows_ = num_partial_rows;
      num_shared_keys_ = num_shared_keys;
      break;
    }
    next = end;
  }
  // The longest first: what is short fills the gaps at the end.
  std::stable_sort(wide_.begin(), wide_.end(), [](const AttentionItem& a, const AttentionItem& b) {
    return a.key_end - a.key_begin > b.key_end - b.key_begin;
  });
  return next;
}

std::size_t AttentionPlan::add_sequences(const AttentionRows& rows, std::size_t first) {
  const SharedRun run = find_shared(rows, first);
  if (run.num_keys > 0) {
    add_shared(rows, first, run);
    return first + static_cast<std::size_t>(run.num_sequences);
  }
  const std::int32_t begin = rows.cu_seqlens[first];
  const std::int32_t end = rows.cu_seqlens[first + 1];
  const bool is_narrow = (end - begin) * rows.group <= kNarrowRows;
  const std::int32_t tokens = (is_narrow ? kNarrowRows : kWideRows) / rows.group;
  const std::int32_t split_keys =
      is_narrow ? kNarrowSplitKeys
                : wide_split_keys((end - begin + tokens - 1) / tokens, rows.context_lens[first]);
  for (std::int32_t row = begin; row < end; row += tokens) {
    add_tile(rows, static_cast<std::int32_t>(first), row, std::min(tokens, end - row), is_narrow,
             split_keys);
  }
  return first + 1;
}

AttentionPlan::SharedRun AttentionPlan::find_shared(const AttentionRows& rows, std::size_t first) {
  SharedRun best;
  if (rows.block_tables.empty() || rows.window_tokens > 0 || !rows.causal) return best;
  const std::size_t most = static_cast<std::size_t>(kNarrowRows / rows.group);
  std::int32_t keys = 0;
  std::int64_t most_saved = 0;
  for (std::size_t s = first; s < rows.context_lens.size() && s - first < most; ++s) {
    if (!is_decode(rows, s)) break;
    if (s == first) continue;
    const std::int32_t own = shared_keys(rows, first, s);
    keys = s == first + 1 ? own : std::min(keys, own);
    if (keys == 0) break;
    // One more sequence may share fewer keys with all.
    const std::int64_t saved = static_cast<std::int64_t>(s - first) * keys;
    if (saved < most_saved) break;
    most_saved = saved;
    best = {static_cast<std::int32_t>(s - first) + 1, keys};
  }
  return best;
}

// Step 1: the splits of the shared keys, with rows of all sequences. Step 2: each sequence's own
// splits, and where its results of both lie.
void AttentionPlan::add_shared(const AttentionRows& rows, std::size_t first, const SharedRun& run) {
  const std::int32_t stride = run.num_sequences * rows.group;
  const std::int32_t num_shared = run.num_keys / kNarrowSplitKeys;
  const std::int32_t partial = num_partial_rows_;
  const auto combine = static_cast<std::int32_t>(narrow_combines_.size());
  std::int32_t most_splits = 0;
  for (std::int32_t i = 0; i < num_shared; ++i) {
    const std::int32_t begin = i * kNarrowSplitKeys;
    narrow_.push_back({rows.cu_seqlens[first], stride, run.num_keys,
                       static_cast<std::int32_t>(first), begin, begin + kNarrowSplitKeys,
                       partial + i * stride, combine});
  }
  for (std::int32_t member = 0; member < run.num_sequences; ++member) {
    const std::size_t s = first + static_cast<std::size_t>(member);
    const std::int32_t context = rows.context_lens[s];
    const std::int32_t num_splits = (context - 1) / kNarrowSplitKeys + 1;
    const std::int32_t own = partial + member * rows.group;
    for (std::int32_t i = num_shared; i < num_splits; ++i) {
      const std::int32_t begin = i * kNarrowSplitKeys;
      narrow_.push_back({rows.cu_seqlens[s], rows.group, context - 1, static_cast<std::int32_t>(s),
                         begin, std::min(context, begin + kNarrowSplitKeys), own + i * stride,
                         combine + member});
    }
    narrow_combines_.push_back({rows.cu_seqlens[s], rows.group, own, num_splits, stride});
    most_splits = std::max(most_splits, num_splits);
  }
  num_partial_rows_ += most_splits * stride;
  num_shared_keys_ += std::int64_t{run.num_sequences - 1} * run.num_keys;
}

void AttentionPlan::add_tile(const AttentionRows& rows, std::int32_t sequence,
                             std::int32_t first_row, std::int32_t num_tokens, bool is_narrow,
                             std::int32_t split_keys) {
  const auto s = static_cast<std::size_t>(sequence);
  const std::int32_t context = rows.context_lens[s];
  AttentionItem item{};
  item.first_row = first_row;
  item.num_rows = num_tokens * rows.group;
  item.first_position = context - (rows.cu_seqlens[s + 1] - first_row);
  item.sequence = sequence;
  const std::int32_t end = rows.causal ? item.first_position + num_tokens : context;
  std::int32_t begin = 0;
  if (rows.window_tokens > 0) {
    begin = std::max(item.first_position - rows.window_tokens + 1, 0);
    begin = begin / kAttentionKeys * kAttentionKeys;
  }
  const std::int32_t first_split = begin / split_keys;
  const std::int32_t num_splits = (end - 1) / split_keys - first_split + 1;
  item.combine =
      num_splits > 1 && is_narrow ? static_cast<std::int32_t>(narrow_combines_.size()) : -1;
  if (num_splits > 1 && is_narrow) {
    for (std::int32_t token = 0; token < num_tokens; ++token) {
      narrow_combines_.push_back({first_row + token, rows.group,
                                  num_partial_rows_ + token * rows.group, num_splits,
                                  item.num_rows});
    }
  } else if (num_splits > 1) {
    wide_combines_.push_back(
        {first_row, item.num_rows, num_partial_rows_, num_splits, item.num_rows});
  }
  for (std::int32_t i = 0; i < num_splits; ++i) {
    item.key_begin = std::max(begin, (first_split + i) * split_keys);
    item.key_end = std::min(end, (first_split + i + 1) * split_keys);
    item.partial = num_splits > 1 ? num_partial_rows_ : -1;
    (is_narrow ? narrow_ : wide_).push_back(item);
    if (num_splits > 1) num_partial_rows_ += item.num_rows;
  }
}

std::size_t AttentionPlan::packed_bytes() const {
  return sizeof(AttentionCounts) + (wide_.size() + narrow_.size()) * sizeof(AttentionItem) +
         (wide_combines_.size() + narrow_combines_.size()) * sizeof(CombineItem) +
         narrow_combines_.size() * static_cast<std::size_t>(kv_heads_) * sizeof(std::int32_t);
}

void AttentionPlan::pack(std::byte* target) const {
  const auto add = [&](const void* source, std::size_t bytes) {
    if (bytes > 0) std::memcpy(target, source, bytes);
    target += bytes;
  };
  const AttentionCounts counts{static_cast<std::int32_t>(wide_.size()),
                               static_cast<std::int32_t>(narrow_.size()),
                               static_cast<std::int32_t>(wide_combines_.size()),
                               static_cast<std::int32_t>(narrow_combines_.size()),
                               group_,
                               {}};
  add(&counts, sizeof(counts));
  add(wide_.data(), wide_.size() * sizeof(AttentionItem));
  add(narrow_.data(), narrow_.size() * sizeof(AttentionItem));
  add(wide_combines_.data(), wide_combines_.size() * sizeof(CombineItem));
  add(narrow_combines_.data(), narrow_combines_.size() * sizeof(CombineItem));
  std::memset(target, 0,
              narrow_combines_.size() * static_cast<std::size_t>(kv_heads_) * sizeof(std::int32_t));
}

}  // namespace batchmill
