// Writes code points as UTF-8, for tests that make up texts.
#pragma once

#include <string>
#include <string_view>

namespace batchmill::testing {

inline std::string to_utf8(std::u32string_view code_points) {
  std::string bytes;
  const auto push = [&](char32_t value) { bytes.push_back(static_cast<char>(value)); };
  for (const char32_t c : code_points) {
    if (c < 0x80) {
      push(c);
      continue;
    }
    const int num_more = c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
    constexpr char32_t kLeadBits[] = {0, 0xC0, 0xE0, 0xF0};
    push(kLeadBits[num_more] | c >> 6 * num_more);
    for (int i = num_more - 1; i >= 0; --i) push(0x80 | (c >> 6 * i & 0x3F));
  }
  return bytes;
}

}  // namespace batchmill::testing
