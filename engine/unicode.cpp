#include "engine/unicode.h"

#include <cstring>

#include "engine/code_point_table.h"

namespace batchmill {
namespace {

constexpr CodePointRange kSpaces[] = {
    {0x0009, 0x000D}, {0x0020, 0x0020}, {0x0085, 0x0085}, {0x00A0, 0x00A0}, {0x1680, 0x1680},
    {0x2000, 0x200A}, {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000},
};

CharClass class_of(CharCategory category) {
  switch (category) {
    case CharCategory::kUpperLetter:
    case CharCategory::kLowerLetter:
    case CharCategory::kOtherLetter:
      return CharClass::kLetter;
    case CharCategory::kNumber:
      return CharClass::kNumber;
    case CharCategory::kSpace:
      return CharClass::kSpace;
    default:
      return CharClass::kOther;
  }
}

template <class Value, class Of>
CodePointTable<Value> make_table(const Of& value_of) {
  const typename CodePointTable<Value>::Part parts[] = {
      {upper_letter_ranges(), value_of(CharCategory::kUpperLetter)},
      {lower_letter_ranges(), value_of(CharCategory::kLowerLetter)},
      {other_letter_ranges(), value_of(CharCategory::kOtherLetter)},
      {mark_ranges(), value_of(CharCategory::kMark)},
      {number_ranges(), value_of(CharCategory::kNumber)},
      {punctuation_ranges(), value_of(CharCategory::kPunctuation)},
      {symbol_ranges(), value_of(CharCategory::kSymbol)},
      {kSpaces, value_of(CharCategory::kSpace)},
  };
  return CodePointTable<Value>(parts);
}

// How many bytes a lead byte announces, and the range its second byte must lie in (this is what
// excludes overlong forms, surrogates and what lies beyond U+10FFFF).
struct Lead {
  std::uint32_t num_bytes;  // 0: not a lead byte
  unsigned char second_min;
  unsigned char second_max;
};

Lead lead_of(unsigned char byte) {
  if (byte < 0x80) return {1, 0, 0};
  if (byte < 0xC2) return {0, 0, 0};
  if (byte < 0xE0) return {2, 0x80, 0xBF};
  if (byte == 0xE0) return {3, 0xA0, 0xBF};
  if (byte == 0xED) return {3, 0x80, 0x9F};
  if (byte < 0xF0) return {3, 0x80, 0xBF};
  if (byte == 0xF0) return {4, 0x90, 0xBF};
  if (byte < 0xF4) return {4, 0x80, 0xBF};
  if (byte == 0xF4) return {4, 0x80, 0x8F};
  return {0, 0, 0};
}

}  // namespace

CharCategory char_category(char32_t code_point) {
  static const auto table =
      make_table<CharCategory>([](CharCategory category) { return category; });
  return table[code_point];
}

CharClass char_class(char32_t code_point) {
  static const auto table = make_table<CharClass>(class_of);
  return table[code_point];
}

std::span<const CodePointRange> space_ranges() { return kSpaces; }

Utf8Part utf8_part_at(std::string_view bytes, std::size_t position) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(bytes[position + i]); };
  const Lead lead = lead_of(byte(0));
  if (lead.num_bytes == 0) return {Utf8Part::State::kInvalid, 1};
  for (std::size_t i = 1; i < lead.num_bytes; ++i) {
    if (position + i >= bytes.size()) return {Utf8Part::State::kUnfinished, i};
    const unsigned char min = i == 1 ? lead.second_min : 0x80;
    const unsigned char max = i == 1 ? lead.second_max : 0xBF;
    if (byte(i) < min || byte(i) > max) return {Utf8Part::State::kInvalid, i};
  }
  return {Utf8Part::State::kCharacter, lead.num_bytes};
}

std::size_t valid_utf8_prefix(std::string_view bytes) {
  std::size_t position = 0;
  while (position < bytes.size()) {
    std::uint64_t word;
    if (position + sizeof word <= bytes.size()) {  // eight ASCII bytes at once
      std::memcpy(&word, bytes.data() + position, sizeof word);
      if ((word & 0x8080808080808080u) == 0) {
        position += sizeof word;
        continue;
      }
    }
    const Utf8Part part = utf8_part_at(bytes, position);
    if (part.state != Utf8Part::State::kCharacter) break;
    position += part.num_bytes;
  }
  return position;
}

void append_utf8(char32_t code_point, std::string* text) {
  const auto push = [&](char32_t byte) { text->push_back(static_cast<char>(byte)); };
  if (code_point < 0x80) {
    push(code_point);
  } else if (code_point < 0x800) {
    push(0xC0 | code_point >> 6);
    push(0x80 | (code_point & 0x3F));
  } else if (code_point < 0x10000) {
    push(0xE0 | code_point >> 12);
    push(0x80 | (code_point >> 6 & 0x3F));
    push(0x80 | (code_point & 0x3F));
  } else {
    push(0xF0 | code_point >> 18);
    push(0x80 | (code_point >> 12 & 0x3F));
    push(0x80 | (code_point >> 6 & 0x3F));
    push(0x80 | (code_point & 0x3F));
  }
}

std::string replace_invalid_utf8(std::string_view bytes) {
  std::string text;
  text.reserve(bytes.size());
  append_valid_utf8(bytes, &text);
  return text;
}

void append_valid_utf8(std::string_view bytes, std::string* text) {
  while (true) {
    const std::size_t num_valid = valid_utf8_prefix(bytes);
    *text += bytes.substr(0, num_valid);
    bytes.remove_prefix(num_valid);
    if (bytes.empty()) return;
    *text += kReplacementCharacter;
    bytes.remove_prefix(utf8_part_at(bytes, 0).num_bytes);
  }
}

}  // namespace batchmill
