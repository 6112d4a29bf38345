#include "engine/block_manager.h"

#include <gtest/gtest.h>

namespace batchmill {
namespace {

Sequence make_sequence(std::vector<TokenId> tokens) {
  Sequence sequence;
  sequence.num_prompt_tokens = static_cast<std::int32_t>(tokens.size());
  sequence.tokens = std::move(tokens);
  return sequence;
}

void schedule(BlockManager* blocks, Sequence* sequence, std::int32_t rows, bool with_tail) {
  ASSERT_TRUE(blocks->match(*sequence));
  ASSERT_EQ(blocks->extend(*sequence, rows), rows);
  sequence->num_scheduled_tokens = rows;
  blocks->publish(*sequence, with_tail);
}

TEST(BlockManagerTest, AFailedCopyOverAnOwnUnfinishedBlockLosesThatBlock) {
  BlockManager blocks(8, 4);
  Sequence slow = make_sequence({1, 2, 3, 4, 5, 6});
  Sequence fast = make_sequence({1, 2, 3});
  schedule(&blocks, &slow, 2, /*with_tail=*/false);
  schedule(&blocks, &fast, 3, /*with_tail=*/true);
  blocks.commit();

  // The other one is ahead by a token: its block is copied in place of the own one.
  EXPECT_TRUE(blocks.match(slow));
  EXPECT_EQ(slow.num_computed_tokens, 3);
  ASSERT_EQ(blocks.copies().size(), 1u);
  EXPECT_EQ(blocks.copies()[0].num_tokens, 3);
  blocks.rollback();
  EXPECT_EQ(slow.num_computed_tokens, 0);
  EXPECT_TRUE(slow.blocks.empty());

  EXPECT_TRUE(blocks.match(slow));
  EXPECT_EQ(slow.num_computed_tokens, 3);
  blocks.commit();
  EXPECT_EQ(slow.num_computed_tokens, 3);
  EXPECT_EQ(blocks.pool().num_free(), 8 - 2);
  blocks.release(slow, /*keep_tail=*/true);
  blocks.release(fast, /*keep_tail=*/false);
  EXPECT_EQ(blocks.num_available(), 8);
}

}  // namespace
}  // namespace batchmill
