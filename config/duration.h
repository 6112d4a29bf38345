// Durations as users write them: a whole number and a unit, "30s", "15m", "24h", "7d".
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace batchmill {

// Seconds; absent if the text is not a duration or does not fit.
std::optional<std::int64_t> parse_duration_s(std::string_view text);

// The shortest text that parse_duration_s reads back as `seconds` (>= 0).
std::string format_duration_s(std::int64_t seconds);

}  // namespace batchmill
