#include "engine/block_pool.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace batchmill {
namespace {

TEST(BlockPoolTest, HandsOutEachBlockOnceAndThenNone) {
  BlockPool pool(3);
  std::vector<BlockRef> held;
  for (int i = 0; i < 3; ++i) held.push_back(pool.allocate());
  EXPECT_NE(held[0].id(), held[1].id());
  EXPECT_NE(held[1].id(), held[2].id());
  EXPECT_NE(held[0].id(), held[2].id());
  EXPECT_FALSE(pool.allocate());
  held.pop_back();
  EXPECT_TRUE(pool.allocate());
}

TEST(BlockPoolTest, KeepsSharedBlocksWhileOneOwnerLives) {
  BlockPool pool(1);
  BlockRef first = pool.allocate();
  {
    const BlockRef second = first.share();
    EXPECT_EQ(second.id(), first.id());
    EXPECT_EQ(pool.ref_count(first.id()), 2);
    first.reset();
    EXPECT_EQ(pool.num_free(), 0);
  }
  EXPECT_EQ(pool.num_free(), 1);
}

TEST(BlockPoolTest, MovesAReferenceWithoutCounting) {
  BlockPool pool(2);
  BlockRef first = pool.allocate();
  BlockRef moved = std::move(first);
  EXPECT_EQ(pool.ref_count(moved.id()), 1);
  moved = pool.allocate();
  EXPECT_EQ(pool.num_free(), 1);
}

TEST(BlockPoolTest, CallsABlockEvictableWhileOnlyTheTreeHoldsIt) {
  BlockPool pool(1);
  BlockRef tree = pool.allocate();
  BlockRef user = tree.share();
  pool.set_cached(tree.id(), true);
  EXPECT_EQ(pool.num_evictable(), 0);
  user.reset();
  EXPECT_EQ(pool.num_evictable(), 1);
  user = tree.share();
  EXPECT_EQ(pool.num_evictable(), 0);
  user.reset();
  pool.set_cached(tree.id(), false);
  EXPECT_EQ(pool.num_evictable(), 0);
}

TEST(BlockPoolTest, FreeAndUsedBlocksAreAllBlocksAfterAnySequence) {
  constexpr std::int32_t kNumBlocks = 17;
  BlockPool pool(kNumBlocks);
  std::mt19937 random(7);
  std::vector<BlockRef> held;
  for (int turn = 0; turn < 20'000; ++turn) {
    const auto pick = held.empty() ? 0 : random() % held.size();
    switch (random() % 3) {
      case 0:
        if (BlockRef block = pool.allocate()) held.push_back(std::move(block));
        break;
      case 1:
        if (!held.empty() && held.size() < 60) held.push_back(held[pick].share());
        break;
      default:
        if (!held.empty()) {
          std::swap(held[pick], held.back());
          held.pop_back();
        }
    }
    std::vector<std::int32_t> counts(kNumBlocks, 0);
    for (const BlockRef& block : held) ++counts[static_cast<std::size_t>(block.id())];
    std::int32_t used = 0;
    for (BlockId id = 0; id < kNumBlocks; ++id) {
      ASSERT_EQ(pool.ref_count(id), counts[static_cast<std::size_t>(id)]);
      used += counts[static_cast<std::size_t>(id)] > 0;
    }
    ASSERT_EQ(pool.num_free() + used, kNumBlocks);
  }
}

}  // namespace
}  // namespace batchmill
