// UTF-8 and the character classes that tokenizers split text by (Unicode 16). Pure functions over
// constant tables; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "engine/unicode_tables.h"

namespace batchmill {

// What pre-tokenizer expressions tell apart: \p{L}, \p{N}, \s and everything else.
enum class CharClass : std::uint8_t { kOther = 0, kLetter = 1, kNumber = 2, kSpace = 3 };

// What the finer ones tell apart; white space is no other category.
enum class CharCategory : std::uint8_t {
  kOther = 0,
  kUpperLetter,  // \p{Lu}, \p{Lt}
  kLowerLetter,  // \p{Ll}
  kOtherLetter,  // \p{Lm}, \p{Lo}
  kMark,  // \p{M}
  kNumber,  // \p{N}
  kPunctuation,  // \p{P}
  kSymbol,  // \p{S}
  kSpace,  // \s
};

CharCategory char_category(char32_t code_point);
CharClass char_class(char32_t code_point);

// The code points of \s, as the reference tokenizers know them: U+180E, which was once white space,
// is not one.
std::span<const CodePointRange> space_ranges();

// One character of valid UTF-8 text.
struct Utf8Char {
  char32_t code_point;
  std::uint32_t num_bytes;
};

// The character that starts at `position` < text.size(). `text` must be valid UTF-8.
inline Utf8Char utf8_char_at(std::string_view text, std::size_t position) {
  const auto byte = [&](std::size_t i) {
    return static_cast<char32_t>(static_cast<unsigned char>(text[position + i]));
  };
  const char32_t lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  if (lead < 0xE0) return {(lead & 0x1F) << 6 | (byte(1) & 0x3F), 2};
  if (lead < 0xF0) return {(lead & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F), 3};
  return {(lead & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F),
          4};
}

// What stands at one position of bytes that may not be UTF-8.
struct Utf8Part {
  enum class State : std::uint8_t { kCharacter, kInvalid, kUnfinished };
  State state;
  // Bytes of the character; or of the maximal invalid part (the longest start of a character, at
  // least one byte: what WHATWG replaces by one U+FFFD); or of a start of a character that the end
  // of the bytes cuts off.
  std::size_t num_bytes;
};

Utf8Part utf8_part_at(std::string_view bytes, std::size_t position);

// Bytes at the start of `bytes` that are whole characters.
std::size_t valid_utf8_prefix(std::string_view bytes);

// Appends a code point that is no surrogate.
void append_utf8(char32_t code_point, std::string* text);

inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";  // U+FFFD

// `bytes` with each maximal invalid part (an unfinished end too) replaced by U+FFFD.
std::string replace_invalid_utf8(std::string_view bytes);
// The same, written behind `text`.
void append_valid_utf8(std::string_view bytes, std::string* text);

}  // namespace batchmill
