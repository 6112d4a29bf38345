// Output lines in the form that a user wants them. Pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace batchmill {

enum class ResultFormat : std::uint8_t { kJsonl, kText, kCsv };

ResultFormat parse_result_format(const std::string& name);

// What stands before the first line: csv's column names.
std::string result_header(ResultFormat format);

// `line`: one output line of JSON without its line end. kText: each choice's text, a newline behind
// each; a failure gives nothing. kCsv: one row per choice, the tokens in the first one's.
std::string format_result(ResultFormat format, std::string_view line);

}  // namespace batchmill
