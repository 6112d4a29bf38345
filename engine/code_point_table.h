// A value of one byte for every code point: two stages, so that equal pages are stored once and
// lookups stay in the cache. Filled at construction, then immutable; any thread.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <map>
#include <span>
#include <vector>

#include "engine/unicode_tables.h"

namespace batchmill {

// `Value` is an enumeration or integer of one byte; Value{} is what no range names.
template <class Value>
class CodePointTable {
 public:
  static_assert(sizeof(Value) == 1);

  struct Part {
    std::span<const CodePointRange> ranges;
    Value value;
  };

  // Later parts win.
  explicit CodePointTable(std::span<const Part> parts) {
    std::vector<Value> values(kNumPages * kPageSize, Value{});
    for (const Part& part : parts) {
      for (const CodePointRange& range : part.ranges) {
        for (std::uint32_t c = range.first; c <= range.last; ++c) values[c] = part.value;
      }
    }
    std::map<Page, std::uint16_t> known;
    for (std::size_t i = 0; i < kNumPages; ++i) {
      Page page;
      std::memcpy(page.data(), values.data() + i * kPageSize, kPageSize);
      const auto [entry, is_new] =
          known.try_emplace(page, static_cast<std::uint16_t>(pages_.size()));
      if (is_new) pages_.push_back(page);
      page_of_[i] = entry->second;
    }
  }

  Value operator[](char32_t code_point) const {
    if (code_point >= kNumPages * kPageSize) return Value{};
    return pages_[page_of_[code_point / kPageSize]][code_point % kPageSize];
  }

 private:
  static constexpr std::size_t kPageSize = 256;
  static constexpr std::size_t kNumPages = 0x110000 / kPageSize;
  using Page = std::array<Value, kPageSize>;

  std::array<std::uint16_t, kNumPages> page_of_{};
  std::vector<Page> pages_;
};

}  // namespace batchmill
