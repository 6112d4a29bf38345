#include "config/duration.h"

#include <charconv>
#include <limits>
#include <utility>

namespace batchmill {
namespace {

// From the largest, so that the first one that divides gives the shortest text.
constexpr std::pair<char, std::int64_t> kUnits[] = {{'d', 86400}, {'h', 3600}, {'m', 60}, {'s', 1}};

}  // namespace

std::optional<std::int64_t> parse_duration_s(std::string_view text) {
  if (text.size() < 2 || text.front() < '0' || text.front() > '9') return std::nullopt;
  const std::string_view digits = text.substr(0, text.size() - 1);
  std::int64_t count = 0;
  const auto [end, error] = std::from_chars(digits.begin(), digits.end(), count);
  if (error != std::errc() || end != digits.end()) return std::nullopt;
  for (const auto& [unit, seconds] : kUnits) {
    if (text.back() != unit) continue;
    if (count > std::numeric_limits<std::int64_t>::max() / seconds) return std::nullopt;
    return count * seconds;
  }
  return std::nullopt;
}

std::string format_duration_s(std::int64_t seconds) {
  for (const auto& [unit, unit_seconds] : kUnits) {
    if (seconds != 0 && seconds % unit_seconds == 0) {
      return std::to_string(seconds / unit_seconds) + unit;
    }
  }
  return "0s";
}

}  // namespace batchmill
