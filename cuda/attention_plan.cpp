#include "cuda/attention_plan.h"

#include <algorithm>
#include <cstring>

namespace batchmill {

void AttentionPlan::make(const AttentionRows& rows) {
  wide_.clear();
  narrow_.clear();
  combines_.clear();
  num_partial_rows_ = 0;
  for (std::size_t s = 0; s < rows.context_lens.size(); ++s) {
    const std::int32_t begin = rows.cu_seqlens[s];
    const std::int32_t end = rows.cu_seqlens[s + 1];
    const bool is_narrow = (end - begin) * rows.group <= kNarrowRows;
    const std::int32_t tokens = (is_narrow ? kNarrowRows : kWideRows) / rows.group;
    for (std::int32_t row = begin; row < end; row += tokens) {
      add_tile(rows, static_cast<std::int32_t>(s), row, std::min(tokens, end - row), is_narrow);
    }
  }
}

void AttentionPlan::add_tile(const AttentionRows& rows, std::int32_t sequence,
                             std::int32_t first_row, std::int32_t num_tokens, bool is_narrow) {
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
  const std::int32_t split_keys = is_narrow ? kNarrowSplitKeys : kWideSplitKeys;
  const std::int32_t first_split = begin / split_keys;
  const std::int32_t num_splits = (end - 1) / split_keys - first_split + 1;
  if (num_splits > 1) {
    combines_.push_back({first_row, item.num_rows, num_partial_rows_, num_splits});
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
         combines_.size() * sizeof(CombineItem);
}

void AttentionPlan::pack(std::byte* target) const {
  const auto add = [&](const void* source, std::size_t bytes) {
    if (bytes > 0) std::memcpy(target, source, bytes);
    target += bytes;
  };
  const AttentionCounts counts{static_cast<std::int32_t>(wide_.size()),
                               static_cast<std::int32_t>(narrow_.size()),
                               static_cast<std::int32_t>(combines_.size())};
  add(&counts, sizeof(counts));
  add(wide_.data(), wide_.size() * sizeof(AttentionItem));
  add(narrow_.data(), narrow_.size() * sizeof(AttentionItem));
  add(combines_.data(), combines_.size() * sizeof(CombineItem));
}

}  // namespace batchmill
