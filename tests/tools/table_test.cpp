#include "tools/table.h"

#include <gtest/gtest.h>

namespace batchmill {
namespace {

TEST(TableTest, AlignsTextToTheLeftAndNumbersToTheRight) {
  Table table({"NAME", "N"});
  table.add({"ä", "5"});
  table.add({"long", "1000"});
  EXPECT_EQ(table.text(),
            "NAME     N\n"
            "ä        5\n"
            "long  1000\n");
}

TEST(TableTest, ShowsWhatWouldActOnTheTerminal) {
  Table table({"NAME", "N"});
  table.add({"a\x1b[2Jb\nc", "1"});
  EXPECT_EQ(table.text(),
            "NAME          N\n"
            "a\\x1b[2Jb\\nc  1\n");
}

TEST(TableTest, WithoutRowsShowsTheHeader) { EXPECT_EQ(Table({"A", "B"}).text(), "A  B\n"); }

}  // namespace
}  // namespace batchmill
