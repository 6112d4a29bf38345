#include "engine/cpu/row_chain.h"

#include <gtest/gtest.h>

#include <vector>

namespace batchmill {
namespace {

TEST(RowChainTest, TakesEveryRowThroughAllOperationsInOrder) {
  ThreadTeam team(3, TeamKind::kOwn);
  RowChain chain(&team);
  for (const std::int32_t rows : {1, 2, 3, 47, 64, 288, 289, 1000}) {
    std::vector<std::int32_t> values(static_cast<std::size_t>(rows), 1);
    std::int32_t* const data = values.data();
    const auto update = [data](std::int32_t first, std::int32_t count, const auto& change) {
      for (std::int32_t i = first; i < first + count; ++i) data[i] = change(data[i]);
    };
    chain.add(rows, [update](std::int32_t first, std::int32_t count, std::int32_t thread) {
      ASSERT_LT(thread, 3);
      ASSERT_LE(count, RowChain::kBlockRows);
      update(first, count, [](std::int32_t value) { return value + 4; });
    });
    chain.add(rows, [update](std::int32_t first, std::int32_t count, std::int32_t) {
      update(first, count, [](std::int32_t value) { return value * 3; });
    });
    EXPECT_EQ(values.front(), 1);  // not before finish()
    chain.finish();
    EXPECT_EQ(values, std::vector<std::int32_t>(static_cast<std::size_t>(rows), 15));
    chain.finish();
    EXPECT_EQ(values.back(), 15);
  }
}

TEST(RowChainTest, FinishesWhatHasOtherRowsFirst) {
  ThreadTeam team(2, TeamKind::kOwn);
  RowChain chain(&team);
  std::vector<std::int32_t> rows(100, 0);
  std::int32_t* const data = rows.data();
  chain.add(100, [data](std::int32_t first, std::int32_t count, std::int32_t) {
    for (std::int32_t i = first; i < first + count; ++i) data[i] = i;
  });
  std::int32_t sum = 0;
  chain.add(1, [data, target = &sum](std::int32_t, std::int32_t, std::int32_t) {
    for (std::int32_t i = 0; i < 100; ++i) *target += data[i];
  });
  chain.finish();
  EXPECT_EQ(sum, 4950);
}

}  // namespace
}  // namespace batchmill
