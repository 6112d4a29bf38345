#include "engine/cpu/thread_team.h"

#include <gtest/gtest.h>

#include <atomic>
#include <vector>

namespace batchmill {
namespace {

class ThreadTeamTest : public ::testing::TestWithParam<TeamKind> {};

TEST_P(ThreadTeamTest, CallsEveryThreadOnceAndWaits) {
  ThreadTeam team(5, GetParam());
  for (int round = 0; round < 200; ++round) {
    for (const std::int32_t threads : {5, 1, 3}) {
      std::vector<std::int32_t> calls(5);
      team.run(threads, [&](std::int32_t thread) { ++calls[static_cast<std::size_t>(thread)]; });
      for (std::int32_t i = 0; i < 5; ++i) {
        ASSERT_EQ(calls[static_cast<std::size_t>(i)], i < threads ? 1 : 0);
      }
    }
  }
}

TEST_P(ThreadTeamTest, CoversEveryIndexOnce) {
  ThreadTeam team(3, GetParam());
  for (const std::int32_t count : {0, 1, 2, 3, 7, 1000}) {
    std::vector<std::int32_t> divided(static_cast<std::size_t>(count));
    std::vector<std::int32_t> taken(static_cast<std::size_t>(count));
    std::vector<std::atomic<std::int64_t>> sums(3);
    team.divide(3, count, [&](std::int32_t i) { ++divided[static_cast<std::size_t>(i)]; });
    team.take_turns(3, count, [&](std::int32_t i, std::int32_t thread) {
      ++taken[static_cast<std::size_t>(i)];
      sums[static_cast<std::size_t>(thread)] += i;
    });
    EXPECT_EQ(divided, std::vector<std::int32_t>(static_cast<std::size_t>(count), 1));
    EXPECT_EQ(taken, divided);
    std::int64_t sum = 0;
    for (const auto& part : sums) sum += part;
    EXPECT_EQ(sum, std::int64_t{count} * (count - 1) / 2);
  }
}

// A part that takes long lets the other threads, or the caller, sleep meanwhile.
TEST_P(ThreadTeamTest, WakesThreadsThatSleep) {
  ThreadTeam team(2, GetParam());
  const auto work_long = [] {
    volatile std::int64_t sum = 0;
    for (std::int64_t i = 0; i < 5'000'000; ++i) sum = sum + i;
  };
  for (const std::int32_t slow : {0, 1, 0, 1}) {
    std::atomic<std::int32_t> calls{0};
    team.run(2, [&](std::int32_t thread) {
      if (thread == slow) work_long();
      ++calls;
    });
    EXPECT_EQ(calls, 2);
  }
}

TEST_P(ThreadTeamTest, ComesAndGoes) {
  for (int i = 0; i < 50; ++i) {
    ThreadTeam team(4, GetParam());
    if (i % 2 == 0) continue;
    std::atomic<std::int32_t> calls{0};
    team.run(4, [&](std::int32_t) { ++calls; });
    EXPECT_EQ(calls, 4);
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, ThreadTeamTest,
                         ::testing::Values(TeamKind::kOwn, TeamKind::kOpenMp),
                         [](const auto& kind) {
                           return kind.param == TeamKind::kOwn ? "Own" : "OpenMp";
                         });

}  // namespace
}  // namespace batchmill
