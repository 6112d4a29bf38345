#include "actors/work_share.h"

#include <gtest/gtest.h>

#include <numeric>
#include <random>

namespace batchmill {
namespace {

std::vector<std::uint64_t> divided(std::uint64_t total, std::span<const std::uint64_t> weights) {
  LargestRemainder shares;
  const auto parts = shares.divide(total, weights);
  return {parts.begin(), parts.end()};
}

TEST(WorkShareTest, GivesTheLargestRemaindersTheRest) {
  const std::vector<std::uint64_t> weights = {1, 1, 1};
  EXPECT_EQ(divided(100, weights), (std::vector<std::uint64_t>{34, 33, 33}));
  const std::vector<std::uint64_t> uneven = {7, 1, 2};
  EXPECT_EQ(divided(9, uneven), (std::vector<std::uint64_t>{6, 1, 2}));
}

TEST(WorkShareTest, IsAllZeroWithoutWeights) {
  EXPECT_TRUE(divided(100, {}).empty());
  const std::vector<std::uint64_t> none = {0, 0};
  EXPECT_EQ(divided(100, none), none);
}

TEST(WorkShareTest, AlwaysAddsUpAndIsWithinOneOfTheExactShare) {
  std::mt19937_64 random(7);
  LargestRemainder shares;
  for (int round = 0; round < 2000; ++round) {
    std::vector<std::uint64_t> weights(1 + random() % 200);
    for (auto& weight : weights) weight = random() % 3 == 0 ? 0 : random() % 100'000;
    const std::uint64_t sum = std::accumulate(weights.begin(), weights.end(), std::uint64_t{0});
    if (sum == 0) continue;
    const std::uint64_t total = random() % 1'000'000'000;
    const auto parts = shares.divide(total, weights);
    ASSERT_EQ(std::accumulate(parts.begin(), parts.end(), std::uint64_t{0}), total);
    for (std::size_t i = 0; i < weights.size(); ++i) {
      const long double exact = static_cast<long double>(total) * weights[i] / sum;
      ASSERT_LT(std::abs(static_cast<long double>(parts[i]) - exact), 1.0L);
    }
  }
}

}  // namespace
}  // namespace batchmill
