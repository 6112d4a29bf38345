#include "config/duration.h"

#include <gtest/gtest.h>

#include <random>

namespace batchmill {
namespace {

TEST(DurationTest, ReadsEveryUnit) {
  EXPECT_EQ(parse_duration_s("30s"), 30);
  EXPECT_EQ(parse_duration_s("15m"), 900);
  EXPECT_EQ(parse_duration_s("24h"), 86'400);
  EXPECT_EQ(parse_duration_s("7d"), 604'800);
  EXPECT_EQ(parse_duration_s("0s"), 0);
}

TEST(DurationTest, RefusesWhatIsNoDuration) {
  for (const char* text : {"", "s", "30", "-5s", "+5s", "1.5h", "1h30m", "30 s", " 30s", "30S",
                           "30w", "0x10s", "9223372036854775808s", "9223372036854775807d"}) {
    EXPECT_FALSE(parse_duration_s(text)) << text;
  }
}

TEST(DurationTest, ReadsBackWhatItWrites) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 1000; ++i) {
    const auto seconds = static_cast<std::int64_t>(random() % 10'000'000);
    EXPECT_EQ(parse_duration_s(format_duration_s(seconds)), seconds);
  }
  EXPECT_EQ(format_duration_s(0), "0s");
  EXPECT_EQ(format_duration_s(3600), "1h");
  EXPECT_EQ(format_duration_s(3601), "3601s");
}

}  // namespace
}  // namespace batchmill
