#include "engine/unicode.h"

#include <array>
#include <cstring>
#include <map>
#include <vector>

#include "engine/unicode_tables.h"

namespace batchmill {
namespace {

constexpr std::size_t kPageSize = 256;
constexpr std::size_t kNumPages = 0x110000 / kPageSize;

// White_Space as the reference tokenizers know it: U+180E, which it once held, is not in it.
constexpr CodePointRange kSpaces[] = {
    {0x0009, 0x000D}, {0x0020, 0x0020}, {0x0085, 0x0085}, {0x00A0, 0x00A0}, {0x1680, 0x1680},
    {0x2000, 0x200A}, {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000},
};

// Two-stage table: equal pages are stored once, so that lookups stay in the cache.
class ClassTable {
 public:
  ClassTable() {
    std::vector<CharClass> classes(kNumPages * kPageSize, CharClass::kOther);
    set(&classes, letter_ranges(), CharClass::kLetter);
    set(&classes, number_ranges(), CharClass::kNumber);
    set(&classes, kSpaces, CharClass::kSpace);
    std::map<Page, std::uint8_t> known;
    for (std::size_t i = 0; i < kNumPages; ++i) {
      Page page;
      std::memcpy(page.data(), classes.data() + i * kPageSize, kPageSize);
      const auto [entry, is_new] = known.try_emplace(page, pages_.size());
      if (is_new) pages_.push_back(page);
      page_of_[i] = entry->second;
    }
  }

  CharClass operator[](char32_t code_point) const {
    if (code_point >= kNumPages * kPageSize) return CharClass::kOther;
    return pages_[page_of_[code_point / kPageSize]][code_point % kPageSize];
  }

 private:
  using Page = std::array<CharClass, kPageSize>;

  static void set(std::vector<CharClass>* classes, std::span<const CodePointRange> ranges,
                  CharClass value) {
    for (const CodePointRange& range : ranges) {
      for (std::uint32_t c = range.first; c <= range.last; ++c) (*classes)[c] = value;
    }
  }

  std::array<std::uint8_t, kNumPages> page_of_{};  // fewer than 256 different pages exist
  std::vector<Page> pages_;
};

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

CharClass char_class(char32_t code_point) {
  static const ClassTable table;
  return table[code_point];
}

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

std::string replace_invalid_utf8(std::string_view bytes) {
  std::string text;
  text.reserve(bytes.size());
  while (true) {
    const std::size_t num_valid = valid_utf8_prefix(bytes);
    text += bytes.substr(0, num_valid);
    bytes.remove_prefix(num_valid);
    if (bytes.empty()) return text;
    text += kReplacementCharacter;
    bytes.remove_prefix(utf8_part_at(bytes, 0).num_bytes);
  }
}

}  // namespace batchmill
