#include "engine/normalization.h"

#include <gtest/gtest.h>
#include <utf8proc.h>

#include <cstdlib>
#include <random>

#include "engine/unicode.h"
#include "tests/support/utf8_text.h"

namespace batchmill {
namespace {

// Another library's answer; its Unicode version differs, so texts are of characters both know.
std::string nfc_by_utf8proc(const std::string& text) {
  utf8proc_uint8_t* result = nullptr;
  const auto options = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE);
  const auto size = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                 static_cast<utf8proc_ssize_t>(text.size()), &result, options);
  EXPECT_GE(size, 0);
  std::string composed(reinterpret_cast<const char*>(result), static_cast<std::size_t>(size));
  std::free(result);
  return composed;
}

std::string nfd(const std::string& text) {
  std::u32string code_points;
  append_nfd(text, &code_points);
  return testing::to_utf8(code_points);
}

TEST(NormalizationTest, ComposesAndKeepsWhatIsComposed) {
  EXPECT_EQ(to_nfc("e\u0301"), "é");
  EXPECT_EQ(to_nfc("a\u0323\u0302"), "\u1EAD");
  EXPECT_EQ(to_nfc("a\u0302\u0323"), "\u1EAD");  // marks are sorted first
  EXPECT_EQ(to_nfc("\u1112\u1161\u11AB"), "\uD55C");
  EXPECT_EQ(to_nfc("\uD558\u11AB"), "\uD55C");
  EXPECT_EQ(to_nfc("\u212B"), "\u00C5");  // Ångström's sign
  EXPECT_EQ(to_nfc("\u0344"), "\u0308\u0301");  // never composed again
  EXPECT_EQ(to_nfc("\u0301x"), "\u0301x");
  EXPECT_EQ(to_nfc("plain é 中 \uFB01"), "plain é 中 \uFB01");
  EXPECT_EQ(to_nfc(""), "");
}

TEST(NormalizationTest, Decomposes) {
  EXPECT_EQ(nfd("\u1EAD"), "a\u0323\u0302");
  EXPECT_EQ(nfd("\uD55C"), "\u1112\u1161\u11AB");
  EXPECT_EQ(nfd("\uAC00"), "\u1100\u1161");
  EXPECT_EQ(nfd("a\u0302\u0323"), "a\u0323\u0302");
}

TEST(NormalizationTest, AgreesWithAnotherLibraryOnRandomTexts) {
  std::mt19937 random(41);
  // Letters and the marks, vowels and jamo that join them, of scripts that are long in Unicode.
  const std::pair<char32_t, char32_t> ranges[] = {
      {0x20, 0x7E},     {0xC0, 0x24F},    {0x300, 0x345},   {0x386, 0x3CE},   {0x410, 0x457},
      {0x5B0, 0x5BD},   {0x64B, 0x655},   {0x93C, 0x94D},   {0x9BC, 0x9D7},   {0xB3C, 0xB57},
      {0xBBE, 0xBD7},   {0xCBC, 0xCD6},   {0xDCA, 0xDDF},   {0x1025, 0x1039}, {0x1100, 0x1112},
      {0x1161, 0x1175}, {0x11A8, 0x11C2}, {0x1E00, 0x1EF9}, {0x1F00, 0x1FFC}, {0x2126, 0x212B},
      {0x3046, 0x30FE}, {0xAC00, 0xAFFF}, {0xF900, 0xFA0D}, {0xFB1D, 0xFB4E}, {0x1D15E, 0x1D1C0},
  };
  int num_changed = 0;
  for (int round = 0; round < 100'000; ++round) {
    std::u32string code_points(random() % 10, U' ');
    for (char32_t& c : code_points) {
      const auto [first, last] = ranges[random() % std::size(ranges)];
      c = first + static_cast<char32_t>(random() % (last - first + 1));
      if (utf8proc_category(static_cast<utf8proc_int32_t>(c)) == UTF8PROC_CATEGORY_CN) c = U'e';
    }
    const std::string text = testing::to_utf8(code_points);
    const std::string expected = nfc_by_utf8proc(text);
    ASSERT_EQ(to_nfc(text), expected) << text;
    ASSERT_EQ(to_nfc(expected), expected) << text;
    ASSERT_EQ(to_nfc(nfd(text)), expected) << text;
    if (is_surely_nfc(text)) {
      ASSERT_EQ(text, expected);
    }
    if (text != expected) ++num_changed;
  }
  EXPECT_GT(num_changed, 30'000);
}

TEST(NormalizationTest, LongRunsOfMarksTakeNoQuadraticTime) {
  std::string text = "a";
  for (int i = 0; i < 300'000; ++i) text += i % 2 == 0 ? "\u0301" : "\u0323";
  EXPECT_FALSE(to_nfc(text).empty());
  text.clear();
  for (int i = 0; i < 300'000; ++i) text += "e\u0301";
  EXPECT_EQ(to_nfc(text).size(), 600'000u);
}

}  // namespace
}  // namespace batchmill
