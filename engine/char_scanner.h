// Reads the characters of one text for pre-tokenizers: classes, runs of white space, contractions.
// All offsets are bytes; the text must be valid UTF-8 and outlive the scanner. One thread.
#pragma once

#include <array>
#include <cstddef>
#include <string_view>

#include "engine/unicode.h"

namespace batchmill {

inline constexpr std::array<CharClass, 128> kAsciiClasses = [] {
  std::array<CharClass, 128> classes{};
  for (char c = 'a'; c <= 'z'; ++c) classes[c] = CharClass::kLetter;
  for (char c = 'A'; c <= 'Z'; ++c) classes[c] = CharClass::kLetter;
  for (char c = '0'; c <= '9'; ++c) classes[c] = CharClass::kNumber;
  for (const char c : {'\t', '\n', '\v', '\f', '\r', ' '}) classes[c] = CharClass::kSpace;
  return classes;
}();

inline constexpr std::array<CharCategory, 128> kAsciiCategories = [] {
  std::array<CharCategory, 128> categories{};
  for (const char c : {'$', '+', '<', '=', '>', '^', '`', '|', '~'}) {
    categories[c] = CharCategory::kSymbol;
  }
  for (char c = '!'; c <= '~'; ++c) {
    if (categories[c] == CharCategory::kOther) categories[c] = CharCategory::kPunctuation;
  }
  for (char c = 'a'; c <= 'z'; ++c) categories[c] = CharCategory::kLowerLetter;
  for (char c = 'A'; c <= 'Z'; ++c) categories[c] = CharCategory::kUpperLetter;
  for (char c = '0'; c <= '9'; ++c) categories[c] = CharCategory::kNumber;
  for (const char c : {'\t', '\n', '\v', '\f', '\r', ' '}) categories[c] = CharCategory::kSpace;
  return categories;
}();

// A character's class and length; the end of the text has num_bytes 0.
struct ClassifiedChar {
  CharClass char_class = CharClass::kOther;
  std::size_t num_bytes = 0;

  bool is(CharClass wanted) const { return num_bytes != 0 && char_class == wanted; }
};

// The same with the finer category.
struct CategorizedChar {
  CharCategory category = CharCategory::kOther;
  std::size_t num_bytes = 0;

  bool is(CharCategory wanted) const { return num_bytes != 0 && category == wanted; }
  bool is_letter() const {
    return num_bytes != 0 && category >= CharCategory::kUpperLetter &&
           category <= CharCategory::kOtherLetter;
  }
};

class CharScanner {
 public:
  explicit CharScanner(std::string_view text) : text_(text) {}

  ClassifiedChar at(std::size_t position) const {
    if (position >= text_.size()) return {};
    const auto byte = static_cast<unsigned char>(text_[position]);
    if (byte < 0x80) return {kAsciiClasses[byte], 1};
    const Utf8Char c = utf8_char_at(text_, position);
    return {char_class(c.code_point), c.num_bytes};
  }

  CategorizedChar category_at(std::size_t position) const {
    if (position >= text_.size()) return {};
    const auto byte = static_cast<unsigned char>(text_[position]);
    if (byte < 0x80) return {kAsciiCategories[byte], 1};
    const Utf8Char c = utf8_char_at(text_, position);
    return {char_category(c.code_point), c.num_bytes};
  }

  // num_bytes 0 at the end.
  Utf8Char char_at(std::size_t position) const {
    return position < text_.size() ? utf8_char_at(text_, position) : Utf8Char{0, 0};
  }

  std::size_t size() const { return text_.size(); }

  char byte_at(std::size_t position) const {
    return position < text_.size() ? text_[position] : '\0';
  }

  // The first position from `position` on whose character is not of this class.
  std::size_t skip(CharClass wanted, std::size_t position) const {
    ClassifiedChar c = at(position);
    while (c.is(wanted)) {
      position += c.num_bytes;
      c = at(position);
    }
    return position;
  }

  // End of at most `max` numbers from `begin` on.
  std::size_t skip_numbers(std::size_t begin, int max) const {
    for (int i = 0; i < max; ++i) {
      const ClassifiedChar c = at(begin);
      if (!c.is(CharClass::kNumber)) break;
      begin += c.num_bytes;
    }
    return begin;
  }

  std::size_t skip_newlines(std::size_t position) const {
    while (byte_at(position) == '\r' || byte_at(position) == '\n') ++position;
    return position;
  }

  // Where the white space that begins at `begin` ends, where its last character starts and where
  // the last line break in it ends (`begin` if there is none).
  struct SpaceRun {
    std::size_t end;
    std::size_t last_char;
    std::size_t last_newline_end;
  };
  SpaceRun space_run(std::size_t begin) const {
    SpaceRun run{begin, begin, begin};
    for (ClassifiedChar c = at(begin); c.is(CharClass::kSpace); c = at(run.end)) {
      run.last_char = run.end;
      run.end += c.num_bytes;
      const char byte = text_[run.last_char];
      if (byte == '\r' || byte == '\n') run.last_newline_end = run.end;
    }
    return run;
  }

  // End of 's, 't, 're, 've, 'm, 'll or 'd at the apostrophe at `begin`; `begin` if it is none.
  std::size_t contraction(std::size_t begin, bool ignore_case) const {
    const auto letter = [&](std::size_t position) {
      const char c = byte_at(position);
      return ignore_case && c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    };
    const char first = letter(begin + 1);
    if (first == 's' || first == 't' || first == 'm' || first == 'd') return begin + 2;
    const char second = letter(begin + 2);
    if ((first == 'r' || first == 'v') && second == 'e') return begin + 3;
    if (first == 'l' && second == 'l') return begin + 3;
    // U+017F, the long s, is a case variant of s.
    if (ignore_case && text_.substr(begin + 1, 2) == "\u017F") return begin + 3;
    return begin;
  }

 private:
  std::string_view text_;
};

}  // namespace batchmill
