#include "tools/printable.h"

#include <gtest/gtest.h>

namespace batchmill {
namespace {

TEST(PrintableTest, LeavesTextAlone) {
  for (const char* text : {"", "plain", "Grüße, 世界 🙂", "a b~"})
    EXPECT_EQ(printable(text), text);
}

TEST(PrintableTest, ShowsControlCharacters) {
  EXPECT_EQ(printable("a\x1b[31m\t\r\n\x7f"), "a\\x1b[31m\\t\\r\\n\\x7f");
  EXPECT_EQ(printable(std::string_view("\0", 1)), "\\x00");
  EXPECT_EQ(printable("\xc2\x9b"), "\\u009b");  // a one-character ESC [
  EXPECT_EQ(printable("\xe2\x80\xae"), "\\u202e");  // from here on from right to left
}

TEST(PrintableTest, ShowsBytesThatAreNoText) {
  EXPECT_EQ(printable("a\xff\xc3"), "a\\xff\\xc3");
  EXPECT_EQ(printable("\xed\xa0\x80"), "\\xed\\xa0\\x80");
}

TEST(PrintableTest, KeepsTheLinesOfAMessage) {
  EXPECT_EQ(printable_lines("a\n\x1b\n"), "a\n\\x1b\n");
}

}  // namespace
}  // namespace batchmill
