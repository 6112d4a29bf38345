#include "actors/live_stats.h"

#include <gtest/gtest.h>

namespace batchmill {
namespace {

const JobId kJob{{1}};

TEST(LiveStatsTest, CountsLinesInFlight) {
  LiveStats live;
  live.lines_started(kJob, 5);
  live.lines_returned(kJob, 2);
  EXPECT_EQ(live.job(kJob, 0).lines_running, 3u);
  live.forget_running();
  EXPECT_EQ(live.job(kJob, 0).lines_running, 0u);
}

TEST(LiveStatsTest, AveragesOverTheWindow) {
  LiveStats live;
  for (std::int64_t s = 100; s < 100 + LiveStats::kWindow; ++s) live.tokens_computed(kJob, 50, s);
  EXPECT_DOUBLE_EQ(live.job(kJob, 129).tokens_per_second, 50.0);
  EXPECT_DOUBLE_EQ(live.tokens_per_second(129), 50.0);
}

TEST(LiveStatsTest, AveragesOverTheTimeSinceTheFirstCountWhenThatIsShorter) {
  LiveStats live;
  live.tokens_computed(kJob, 90, 100);
  EXPECT_DOUBLE_EQ(live.job(kJob, 102).tokens_per_second, 30.0);
}

TEST(LiveStatsTest, ForgetsWhatIsOlderThanTheWindow) {
  LiveStats live;
  live.tokens_computed(kJob, 1000, 100);
  EXPECT_DOUBLE_EQ(live.job(kJob, 100 + LiveStats::kWindow).tokens_per_second, 0.0);
}

TEST(LiveStatsTest, KeepsOnlyUnfinishedJobs) {
  const JobId ended{{2}};
  LiveStats live;
  live.lines_started(kJob, 5);
  live.lines_started(ended, 7);
  live.keep_only({kJob});
  EXPECT_EQ(live.job(kJob, 0).lines_running, 5u);
  EXPECT_EQ(live.job(ended, 0).lines_running, 0u);
}

TEST(LiveStatsTest, SaysNothingOfAnUnknownJob) {
  LiveStats live;
  EXPECT_EQ(live.job(kJob, 5).lines_running, 0u);
  EXPECT_DOUBLE_EQ(live.job(kJob, 5).tokens_per_second, 0.0);
}

}  // namespace
}  // namespace batchmill
