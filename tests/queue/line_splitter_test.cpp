#include "queue/line_splitter.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

namespace batchmill {
namespace {

struct Split {
  std::vector<InputLine> lines;
  std::uint64_t offset = 0;
};

Split split(std::string_view bytes, std::uint64_t max_line_bytes = 1 << 20) {
  LineSplitter splitter(max_line_bytes, 1, 0);
  Split result;
  splitter.feed(bytes, &result.lines);
  splitter.finish(&result.lines);
  result.offset = splitter.offset_bytes();
  return result;
}

std::vector<std::string> texts(std::string_view bytes) {
  std::vector<std::string> result;
  for (const InputLine& line : split(bytes).lines) result.push_back(line.bytes);
  return result;
}

using Texts = std::vector<std::string>;

TEST(LineSplitterTest, EndsLinesAtLfOnly) {
  EXPECT_EQ(texts("a\nb\n"), (Texts{"a", "b"}));
  EXPECT_EQ(texts("a\u2028b\u2029c\u0085d\x0b\x0c\re\n"),
            (Texts{"a\u2028b\u2029c\u0085d\x0b\x0c\re"}));
}

TEST(LineSplitterTest, KeepsTheLastLineWithoutLf) {
  EXPECT_EQ(texts("a\nb"), (Texts{"a", "b"}));
  EXPECT_EQ(texts("a\nb\r"), (Texts{"a", "b"}));
  EXPECT_EQ(texts(""), Texts{});
  EXPECT_EQ(texts("\n"), Texts{""});
}

TEST(LineSplitterTest, DropsOneCrBeforeLf) {
  EXPECT_EQ(texts("a\r\n\r\nb\r\r\n"), (Texts{"a", "", "b\r"}));
}

TEST(LineSplitterTest, DropsByteOrderMarksAtLineStarts) {
  EXPECT_EQ(texts("\ufeffa\n\ufeffb\n\ufeff\ufeffc\nd\ufeff\n\ufeff"),
            (Texts{"a", "b", "c", "d\ufeff", ""}));
}

TEST(LineSplitterTest, NumbersLinesAndKnowsWhereTheyEnd) {
  const Split result = split("ab\r\n\nc");
  ASSERT_EQ(result.lines.size(), 3u);
  EXPECT_EQ(result.lines[0].line, 1u);
  EXPECT_EQ(result.lines[0].end_offset_bytes, 4u);
  EXPECT_EQ(result.lines[1].line, 2u);
  EXPECT_EQ(result.lines[1].end_offset_bytes, 5u);
  EXPECT_EQ(result.lines[2].line, 3u);
  EXPECT_EQ(result.lines[2].end_offset_bytes, 6u);
}

TEST(LineSplitterTest, GoesOnWhereAnEarlierOneStopped) {
  LineSplitter splitter(100, 8, 1000);
  std::vector<InputLine> lines;
  splitter.feed("x\n", &lines);
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(lines[0].line, 8u);
  EXPECT_EQ(lines[0].end_offset_bytes, 1002u);
}

TEST(LineSplitterTest, AllowsExactlyTheLongestLine) {
  const std::string longest(5000, 'x');
  const Split result =
      split("\ufeff" + longest + "\r\n" + longest + "y\nz\n" + longest + longest, 5000);
  ASSERT_EQ(result.lines.size(), 4u);
  EXPECT_EQ(result.lines[0].bytes, longest);
  EXPECT_FALSE(result.lines[0].too_long);
  EXPECT_TRUE(result.lines[1].too_long);
  EXPECT_EQ(result.lines[1].bytes, longest.substr(0, 4096));
  EXPECT_EQ(result.lines[2].bytes, "z");
  EXPECT_TRUE(result.lines[3].too_long);
  EXPECT_EQ(result.lines[3].bytes, longest.substr(0, 4096));
  EXPECT_EQ(result.lines[3].end_offset_bytes, result.offset);
}

// However a stream is cut into pieces, the lines are the same.
TEST(LineSplitterTest, DoesNotDependOnHowBytesArrive) {
  std::mt19937 random(11);
  const Texts pieces = {"\n", "\r",         "\r\n", "\ufeff", "\u2028",
                        "a",  "{\"b\": 1}", "\xef", "\xbb",   std::string(90, 'x'),
                        " "};
  for (int round = 0; round < 3000; ++round) {
    std::string bytes;
    for (std::size_t i = 0, count = random() % 30; i < count; ++i)
      bytes += pieces[random() % pieces.size()];
    const Split whole = split(bytes, 64);
    LineSplitter splitter(64, 1, 0);
    std::vector<InputLine> lines;
    for (std::size_t at = 0; at < bytes.size();) {
      const std::size_t size = 1 + random() % 7;
      splitter.feed(std::string_view(bytes).substr(at, size), &lines);
      at += size;
    }
    splitter.finish(&lines);
    ASSERT_EQ(lines.size(), whole.lines.size());
    for (std::size_t i = 0; i < lines.size(); ++i) {
      ASSERT_EQ(lines[i].bytes, whole.lines[i].bytes);
      ASSERT_EQ(lines[i].too_long, whole.lines[i].too_long);
      ASSERT_EQ(lines[i].end_offset_bytes, whole.lines[i].end_offset_bytes);
      ASSERT_EQ(lines[i].line, i + 1);
    }
    ASSERT_EQ(splitter.offset_bytes(), bytes.size());
  }
}

}  // namespace
}  // namespace batchmill
