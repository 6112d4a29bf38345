#include "actors/step_growth.h"

#include <gtest/gtest.h>

namespace batchmill {
namespace {

// Steps until larger ones are due.
int steps_to_growth(StepGrowth& growth) {
  int steps = 1;
  while (!growth.succeeded() && steps < 1'000'000) ++steps;
  return steps;
}

TEST(StepGrowthTest, NothingIsDueBeforeAFailure) {
  StepGrowth growth;
  for (int i = 0; i < 10'000; ++i) ASSERT_FALSE(growth.succeeded());
}

TEST(StepGrowthTest, GrowsAgainAndAgainUntilAllIsBack) {
  StepGrowth growth;
  growth.failed();
  growth.failed();  // the same lack of memory
  for (int i = 0; i < 3; ++i) EXPECT_EQ(steps_to_growth(growth), StepGrowth::kFirstWait);
  growth.set_unlimited();
  for (int i = 0; i < 10'000; ++i) ASSERT_FALSE(growth.succeeded());
}

TEST(StepGrowthTest, WaitsTwiceAsLongAfterEachTryThatFailed) {
  StepGrowth growth;
  int wait = StepGrowth::kFirstWait;
  for (int i = 0; i < 20; ++i) {
    growth.failed();
    EXPECT_EQ(steps_to_growth(growth), wait);
    wait = std::min(2 * wait, StepGrowth::kLongestWait);
  }
}

TEST(StepGrowthTest, AFailureAtFullSizeCountsAsAnotherOneForAWhile) {
  StepGrowth growth;
  growth.failed();
  steps_to_growth(growth);
  growth.set_unlimited();
  growth.succeeded();
  growth.failed();
  EXPECT_EQ(steps_to_growth(growth), 2 * StepGrowth::kFirstWait);
  growth.set_unlimited();
  for (int i = 0; i < 2 * StepGrowth::kFirstWait; ++i) growth.succeeded();
  growth.failed();
  EXPECT_EQ(steps_to_growth(growth), StepGrowth::kFirstWait);
}

}  // namespace
}  // namespace batchmill
