#include "engine/normalization.h"

#include <algorithm>
#include <cstring>
#include <unordered_map>
#include <vector>

#include "engine/code_point_table.h"
#include "engine/normalization_tables.h"
#include "engine/unicode.h"

namespace batchmill {
namespace {

// Hangul syllables are composed of a leading consonant, a vowel and perhaps a trailing consonant by
// arithmetic (The Unicode Standard, section 3.12).
constexpr char32_t kLeadBase = 0x1100;
constexpr char32_t kVowelBase = 0x1161;
constexpr char32_t kTrailBase = 0x11A7;  // one before the first
constexpr char32_t kSyllableBase = 0xAC00;
constexpr char32_t kNumLeads = 19;
constexpr char32_t kNumVowels = 21;
constexpr char32_t kNumTrails = 28;  // with "none"
constexpr char32_t kNumSyllables = kNumLeads * kNumVowels * kNumTrails;

// Below this, every text is in form C and nothing decomposes but what form C leaves composed.
constexpr char32_t kFirstMark = 0x300;

std::uint64_t pair_of(char32_t first, char32_t second) {
  return std::uint64_t{first} << 32 | second;
}

class Tables {
 public:
  Tables() : combining_classes_(mark_parts()), unstable_(unstable_parts()) {
    for (const Composition& c : compositions()) {
      composed_.emplace(pair_of(c.first, c.second), c.composed);
    }
  }

  std::uint8_t combining_class(char32_t c) const { return combining_classes_[c]; }

  // Whether form C may change this character, or move it or join it with the one before.
  bool is_unstable(char32_t c) const { return unstable_[c] != 0; }

  // 0 if they do not compose.
  char32_t compose(char32_t first, char32_t second) const {
    if (first - kLeadBase < kNumLeads && second - kVowelBase < kNumVowels) {
      return kSyllableBase +
             ((first - kLeadBase) * kNumVowels + (second - kVowelBase)) * kNumTrails;
    }
    if (first - kSyllableBase < kNumSyllables && (first - kSyllableBase) % kNumTrails == 0 &&
        second - kTrailBase < kNumTrails && second != kTrailBase) {
      return first + (second - kTrailBase);
    }
    const auto found = composed_.find(pair_of(first, second));
    return found == composed_.end() ? 0 : found->second;
  }

 private:
  using Part = CodePointTable<std::uint8_t>::Part;

  // Ranges that `parts` may refer to; filled before any part is made.
  std::vector<CodePointRange> mark_ranges_;
  std::vector<CodePointRange> unstable_ranges_;

  CodePointTable<std::uint8_t> mark_parts() {
    for (const CombiningClass& c : combining_classes()) mark_ranges_.push_back({c.mark, c.mark});
    std::vector<Part> parts;
    for (std::size_t i = 0; i < mark_ranges_.size(); ++i) {
      parts.push_back({{&mark_ranges_[i], 1}, combining_classes()[i].value});
    }
    return CodePointTable<std::uint8_t>(parts);
  }

  CodePointTable<std::uint8_t> unstable_parts() {
    const auto add = [&](char32_t first, char32_t last) {
      unstable_ranges_.push_back({first, last});
    };
    for (const CombiningClass& c : combining_classes()) add(c.mark, c.mark);
    for (const Composition& c : compositions()) add(c.second, c.second);
    add(kVowelBase, kVowelBase + kNumVowels - 1);
    add(kTrailBase + 1, kTrailBase + kNumTrails - 1);
    // What is decomposed and never composed again.
    std::vector<char32_t> composed;
    for (const Composition& c : compositions()) composed.push_back(c.composed);
    std::ranges::sort(composed);
    for (const Decomposition& d : decompositions()) {
      if (!std::ranges::binary_search(composed, d.from)) add(d.from, d.from);
    }
    const Part part{unstable_ranges_, 1};
    return CodePointTable<std::uint8_t>({&part, 1});
  }

  CodePointTable<std::uint8_t> combining_classes_;
  CodePointTable<std::uint8_t> unstable_;
  std::unordered_map<std::uint64_t, char32_t> composed_;
};

const Tables& tables() {
  static const Tables kTables;
  return kTables;
}

void append_decomposed(char32_t c, std::u32string* out) {
  if (c < 0xC0) {
    out->push_back(c);
    return;
  }
  if (c - kSyllableBase < kNumSyllables) {
    const char32_t index = c - kSyllableBase;
    out->push_back(kLeadBase + index / (kNumVowels * kNumTrails));
    out->push_back(kVowelBase + index / kNumTrails % kNumVowels);
    if (index % kNumTrails != 0) out->push_back(kTrailBase + index % kNumTrails);
    return;
  }
  const auto all = decompositions();
  const auto found = std::ranges::lower_bound(all, c, {}, &Decomposition::from);
  if (found == all.end() || found->from != c) {
    out->push_back(c);
    return;
  }
  for (const char32_t part : decomposition_parts().subspan(found->start, found->length)) {
    out->push_back(part);
  }
}

// Sorts each run of marks by their class, from `begin` on. `begin` must not lie within a run.
void sort_marks(std::size_t begin, std::u32string* text) {
  const Tables& t = tables();
  const auto class_less = [&](char32_t a, char32_t b) {
    return t.combining_class(a) < t.combining_class(b);
  };
  for (std::size_t i = begin; i < text->size(); ++i) {
    if ((*text)[i] < kFirstMark || t.combining_class((*text)[i]) == 0) continue;
    std::size_t end = i + 1;
    while (end < text->size() && t.combining_class((*text)[end]) != 0) ++end;
    std::stable_sort(text->begin() + static_cast<std::ptrdiff_t>(i),
                     text->begin() + static_cast<std::ptrdiff_t>(end), class_less);
    i = end - 1;
  }
}

// Joins what composes; `text` is in form D.
void compose(std::u32string* text) {
  const Tables& t = tables();
  constexpr std::size_t kNone = ~std::size_t{0};
  std::size_t starter = kNone;
  std::size_t size = 0;  // of what is done, in place
  int last_class = 0;  // of the character before, if it is a mark after `starter`
  for (const char32_t c : *text) {
    const int own_class = t.combining_class(c);
    const bool is_next = starter != kNone && starter + 1 == size;
    // A mark of the same or a higher class between them blocks.
    if (starter != kNone && (is_next || last_class < own_class)) {
      if (const char32_t composed = t.compose((*text)[starter], c)) {
        (*text)[starter] = composed;
        continue;
      }
    }
    if (own_class == 0) starter = size;
    last_class = own_class;
    (*text)[size++] = c;
  }
  text->resize(size);
}

// The first position from `position` on that is not ASCII.
std::size_t skip_ascii(std::string_view text, std::size_t position) {
  std::uint64_t word;
  while (position + sizeof word <= text.size()) {
    std::memcpy(&word, text.data() + position, sizeof word);
    if ((word & 0x8080808080808080u) != 0) break;
    position += sizeof word;
  }
  while (position < text.size() && static_cast<unsigned char>(text[position]) < 0x80) ++position;
  return position;
}

// The first unstable character from `position` on; the text's end if there is none.
// `*last_stable`: where the last character before it starts (or `position`).
std::size_t find_unstable(std::string_view text, std::size_t position, std::size_t* last_stable) {
  *last_stable = position;
  while (true) {
    const std::size_t ascii_end = skip_ascii(text, position);
    if (ascii_end != position) *last_stable = ascii_end - 1;
    position = ascii_end;
    if (position == text.size()) return position;
    const Utf8Char c = utf8_char_at(text, position);
    if (c.code_point >= kFirstMark && tables().is_unstable(c.code_point)) return position;
    *last_stable = position;
    position += c.num_bytes;
  }
}

}  // namespace

bool is_surely_nfc(std::string_view text) {
  std::size_t last_stable;
  return find_unstable(text, 0, &last_stable) == text.size();
}

std::string to_nfc(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  std::u32string part;
  for (std::size_t position = 0; position < text.size();) {
    std::size_t begin;
    const std::size_t unstable = find_unstable(text, position, &begin);
    if (unstable == text.size()) {
      result += text.substr(position);
      break;
    }
    // From the stable character before up to the next one, nothing outside matters.
    result += text.substr(position, begin - position);
    std::size_t end = unstable;
    while (end < text.size()) {
      const Utf8Char c = utf8_char_at(text, end);
      if (c.code_point < kFirstMark || !tables().is_unstable(c.code_point)) break;
      end += c.num_bytes;
    }
    part.clear();
    append_nfd(text.substr(begin, end - begin), &part);
    compose(&part);
    for (const char32_t c : part) append_utf8(c, &result);
    position = end;
  }
  return result;
}

void append_nfd(std::string_view text, std::u32string* code_points) {
  const std::size_t begin = code_points->size();
  for (std::size_t position = 0; position < text.size();) {
    const Utf8Char c = utf8_char_at(text, position);
    append_decomposed(c.code_point, code_points);
    position += c.num_bytes;
  }
  sort_marks(begin, code_points);
}

}  // namespace batchmill
