#include "engine/jinja_unicode.h"

#include <algorithm>

#include "engine/jinja_text.h"
#include "engine/jinja_unicode_tables.h"

namespace batchmill::jinja {
namespace {

bool contains(std::span<const CharacterRange> ranges, char32_t c) {
  const auto it = std::partition_point(ranges.begin(), ranges.end(),
                                       [&](const CharacterRange& r) { return r.last < c; });
  return it != ranges.end() && it->first <= c;
}

// False: the tables do not list the character.
bool append_mapped(std::string& out, char32_t c, std::span<const CaseRange> ranges,
                   std::span<const SpecialCase> specials) {
  const auto special = std::partition_point(specials.begin(), specials.end(),
                                            [&](const SpecialCase& s) { return s.from < c; });
  if (special != specials.end() && special->from == c) {
    for (const char32_t mapped : special->to) {
      if (mapped != 0) append_utf8(out, mapped);
    }
    return true;
  }
  const auto range = std::partition_point(ranges.begin(), ranges.end(),
                                          [&](const CaseRange& r) { return r.last < c; });
  if (range != ranges.end() && range->first <= c &&
      (c - range->first) % static_cast<char32_t>(range->step) == 0) {
    append_utf8(out, static_cast<char32_t>(static_cast<std::int32_t>(c) + range->delta));
    return true;
  }
  return false;
}

}  // namespace

bool is_space(char32_t c) {
  return (c >= 9 && c <= 13) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}
bool is_alpha(char32_t c) { return contains(kAlpha, c); }
bool is_decimal(char32_t c) { return contains(kDecimal, c); }
bool is_digit(char32_t c) { return contains(kDigit, c); }
bool is_numeric(char32_t c) { return contains(kNumeric, c); }
bool is_upper(char32_t c) { return contains(kUpper, c); }
bool is_lower(char32_t c) { return contains(kLower, c); }
bool is_cased(char32_t c) { return is_upper(c) || is_lower(c) || contains(kTitle, c); }
bool is_printable(char32_t c) {
  if (c >= 0xDC80 && c <= 0xDCFF) return true;  // a byte that is not UTF-8 passes as it is
  return is_alpha(c) || contains(kPrintable, c);  // the table leaves letters out
}

void append_upper(std::string& out, char32_t c) {
  if (!append_mapped(out, c, kToUpper, kSpecialUpper)) append_utf8(out, c);
}
void append_lower(std::string& out, char32_t c) {
  if (!append_mapped(out, c, kToLower, kSpecialLower)) append_utf8(out, c);
}
void append_title(std::string& out, char32_t c) {
  if (!append_mapped(out, c, kToTitle, kSpecialTitle)) append_upper(out, c);
}
void append_folded(std::string& out, char32_t c) {
  if (!append_mapped(out, c, kToFolded, kSpecialFolded)) append_lower(out, c);
}

}  // namespace batchmill::jinja
