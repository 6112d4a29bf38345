// Unicode normalization forms C and D, as the reference tokenizers compute them. Pure functions
// over constant tables; any thread. Linear in the text, except that runs of marks are sorted.
#pragma once

#include <string>
#include <string_view>

namespace batchmill {

// Whether `text` (valid UTF-8) is certainly in form C; false for a few texts that are.
bool is_surely_nfc(std::string_view text);

// `text` (valid UTF-8) in form C.
std::string to_nfc(std::string_view text);

// Appends `text` (valid UTF-8) in form D, as code points.
void append_nfd(std::string_view text, std::u32string* code_points);

}  // namespace batchmill
