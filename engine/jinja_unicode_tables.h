// Generated character tables for jinja_unicode.cpp, and the shapes of their rows.
#pragma once

#include <cstdint>
#include <span>

namespace batchmill::jinja {

struct CharacterRange {
  char32_t first;
  char32_t last;
};

// Characters first, first + step, … last map to themselves plus delta.
struct CaseRange {
  char32_t first;
  char32_t last;
  std::int32_t step;
  std::int32_t delta;
};

// Mappings to up to three characters; unused ones are 0.
struct SpecialCase {
  char32_t from;
  char32_t to[3];
};

extern const std::span<const CharacterRange> kAlpha, kDecimal, kDigit, kNumeric, kUpper, kLower,
    kTitle, kPrintable;
extern const std::span<const CaseRange> kToUpper, kToLower, kToTitle, kToFolded;
extern const std::span<const SpecialCase> kSpecialUpper, kSpecialLower, kSpecialTitle,
    kSpecialFolded;

}  // namespace batchmill::jinja
