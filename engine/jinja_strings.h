// Operations on texts that str methods and filters share; all keep marks. Free functions.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "engine/jinja_text.h"

namespace batchmill::jinja {

enum class Side { kLeft, kRight, kBoth };
enum class Case { kUpper, kLower, kTitle, kCapitalize, kSwap, kFold };

// Takes off the characters of `characters`, or white space.
Text strip(const Text& text, Side side, const Text* characters);
Text change_case(const Text& text, Case to);
// At most `count` times if that is not negative.
Text replace(const Text& text, const Text& from, const Text& to, std::int64_t count);
// By `separator`, or by runs of white space; at most `max_splits` times if that is not negative.
std::vector<Text> split(const Text& text, const Text* separator, std::int64_t max_splits,
                        bool from_right);
std::vector<Text> split_lines(const Text& text, bool keep_ends);

}  // namespace batchmill::jinja
