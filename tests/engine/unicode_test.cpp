#include "engine/unicode.h"

#include <gtest/gtest.h>
#include <utf8proc.h>

#include <random>

#include "engine/utf8_repair.h"

namespace batchmill {
namespace {

TEST(UnicodeTest, AgreesWithAnotherLibraryOnEveryAssignedCodePoint) {
  for (char32_t c = 0; c <= 0x10FFFF; ++c) {
    const utf8proc_category_t category = utf8proc_category(static_cast<utf8proc_int32_t>(c));
    if (category == UTF8PROC_CATEGORY_CN) continue;  // may be assigned in our later version
    const bool letter = category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
    const bool number = category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO;
    EXPECT_EQ(char_class(c) == CharClass::kLetter, letter) << std::hex << std::uint32_t{c};
    EXPECT_EQ(char_class(c) == CharClass::kNumber, number) << std::hex << std::uint32_t{c};
  }
}

TEST(UnicodeTest, KnowsVersion16AndNothingLater) {
  EXPECT_EQ(char_class(0x10D4A), CharClass::kLetter);
  EXPECT_EQ(char_class(0x88F), CharClass::kOther);
  EXPECT_EQ(char_class(0x110000), CharClass::kOther);
}

TEST(UnicodeTest, SpaceIsExactlyWhiteSpace) {
  const std::u32string spaces =
      U"\t\n\v\f\r \u0085\u00A0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009"
      U"\u200A\u2028\u2029\u202F\u205F\u3000";
  for (char32_t c = 0; c <= 0x10FFFF; ++c) {
    const bool expected = spaces.find(c) != std::u32string::npos;
    EXPECT_EQ(char_class(c) == CharClass::kSpace, expected) << std::hex << std::uint32_t{c};
  }
}

TEST(UnicodeTest, ReplacesEachMaximalInvalidPartByOneCharacter) {
  const std::string r(kReplacementCharacter);
  const std::pair<std::string, std::string> cases[] = {
      {"", ""},
      {"\xFF", r},
      {"\xC3", r},  // unfinished at the end
      {"\xC3(", r + "("},  // broken off
      {"\xE4\xBD", r},  // two bytes of three: one part
      {"a\xF0\x9F\x98", "a" + r},
      {"\xF0\x9F\x98\x80"
       "b\x80",
       "\xF0\x9F\x98\x80"
       "b" +
           r},
      {"\xC0\xAF", r + r},  // overlong
      {"\xE0\x80\x80", r + r + r},  // overlong
      {"\xED\xA0\x80", r + r + r},  // surrogate
      {"\xF4\x90\x80\x80", r + r + r + r},  // beyond U+10FFFF
      {"\xF5\x80", r + r},
      {"\xE2\x82"
       "a",
       r + "a"},
      {"\xF0\x90\x8D\x88\xF0", "\xF0\x90\x8D\x88" + r},
      {"12345678\xFF"
       "12345678",
       "12345678" + r + "12345678"},
  };
  for (const auto& [bytes, expected] : cases) {
    EXPECT_EQ(replace_invalid_utf8(bytes), expected) << ::testing::PrintToString(bytes);
    EXPECT_EQ(valid_utf8_prefix(bytes) == bytes.size(), bytes == expected);
  }
}

TEST(UnicodeTest, RepairedBytesAreValidAndRepairingThemChangesNothing) {
  std::mt19937 random(7);
  for (int round = 0; round < 20000; ++round) {
    std::string bytes(random() % 24, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random() % 4 ? 0x80 + random() % 128 : 'a');
    const std::string repaired = replace_invalid_utf8(bytes);
    ASSERT_EQ(valid_utf8_prefix(repaired), repaired.size());
    ASSERT_EQ(replace_invalid_utf8(repaired), repaired);
    for (std::size_t i = 0; i < repaired.size();) {  // an independent decoder accepts it
      utf8proc_int32_t c = 0;
      const auto n =
          utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(repaired.data()) + i,
                           static_cast<utf8proc_ssize_t>(repaired.size() - i), &c);
      ASSERT_GT(n, 0);
      ASSERT_EQ(utf8_char_at(repaired, i).code_point, static_cast<char32_t>(c));
      i += static_cast<std::size_t>(n);
    }
  }
}

TEST(UnicodeTest, RepairKeepsMarksOnTheSameCharacters) {
  // "a", one bad byte, "b", half a character, "c": everything after "a" up to "b" is marked, and so
  // is the half character's second byte.
  const MarkedText text{
      "a\xFF"
      "b\xE4\xBD"
      "c",
      {{1, 3}, {4, 5}}};
  const MarkedText repaired = replace_invalid_utf8(text);
  EXPECT_EQ(repaired.text, "a\uFFFDb\uFFFDc");
  EXPECT_EQ(repaired.marked, (std::vector<ByteSpan>{{1, 8}}));
}

TEST(UnicodeTest, RepairOfValidTextKeepsItsMarks) {
  const MarkedText text{"aébc", {{1, 3}, {4, 5}}};
  const MarkedText repaired = replace_invalid_utf8(text);
  EXPECT_EQ(repaired.text, text.text);
  EXPECT_EQ(repaired.marked, text.marked);
}

}  // namespace
}  // namespace batchmill
