// Character classes and case mappings as Python's str methods have them (Unicode 14). Pure
// functions.
#pragma once

#include <string>

namespace batchmill::jinja {

bool is_space(char32_t c);
bool is_alpha(char32_t c);
bool is_decimal(char32_t c);
bool is_digit(char32_t c);
bool is_numeric(char32_t c);
bool is_upper(char32_t c);
bool is_lower(char32_t c);
bool is_cased(char32_t c);  // upper, lower or title case
bool is_printable(char32_t c);  // repr shows it as it is
inline bool is_alnum(char32_t c) { return is_alpha(c) || is_numeric(c) || is_decimal(c); }

// The UTF-8 text of a character's full upper, lower, title or folded case.
void append_upper(std::string& out, char32_t c);
void append_lower(std::string& out, char32_t c);
void append_title(std::string& out, char32_t c);
void append_folded(std::string& out, char32_t c);

}  // namespace batchmill::jinja
