// The name of a job: a plain value, made by the store, free to copy between threads.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace batchmill {

// 128 bits, time-sortable: 48 bits of milliseconds, then 80 bits that never repeat. Its text is
// "batch_" and 26 characters of Crockford's base 32 in lower case; texts sort like the ids.
struct JobId {
  std::array<std::uint8_t, 16> bytes{};

  std::string to_string() const;
  // Takes upper case too. Absent unless the text is a whole id.
  static std::optional<JobId> parse(std::string_view text);
  auto operator<=>(const JobId&) const = default;
};

// A line of a job: 1-based, as in the file (blank lines count).
struct LineKey {
  JobId job;
  std::uint64_t line = 0;
  auto operator<=>(const LineKey&) const = default;
};

}  // namespace batchmill
