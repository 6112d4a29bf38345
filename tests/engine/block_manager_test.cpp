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

// Two sequences compute the same block in one step. The next step is planned before that is known
// to have succeeded.
class TwoStepsTest : public ::testing::Test {
 protected:
  TwoStepsTest() {
    schedule(&blocks_, &first_, 4, /*with_tail=*/false);
    schedule(&blocks_, &second_, 2, /*with_tail=*/false);
    blocks_.commit();
    schedule(&blocks_, &first_, 4, false);
    // Takes the first one's block of the step before instead of its own.
    schedule(&blocks_, &second_, 1, false);
    blocks_.advance();
    schedule(&blocks_, &first_, 2, false);
    schedule(&blocks_, &second_, 1, false);
  }

  BlockManager blocks_{16, 4};
  Sequence first_ = make_sequence({1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11});
  Sequence second_ = make_sequence({1, 2, 3, 4, 5, 6, 20, 21});
};

TEST_F(TwoStepsTest, CommitOneByOne) {
  EXPECT_EQ(first_.num_computed_tokens, 8);
  EXPECT_EQ(first_.num_scheduled_tokens, 2);
  blocks_.commit();
  EXPECT_EQ(first_.num_computed_tokens, 8);
  blocks_.commit();
  EXPECT_EQ(first_.num_computed_tokens, 10);
  EXPECT_EQ(first_.num_scheduled_tokens, 0);
  blocks_.release(first_, false);
  blocks_.release(second_, false);
  EXPECT_EQ(blocks_.num_available(), 16);
}

TEST_F(TwoStepsTest, TheSecondFailsAlone) {
  blocks_.commit();
  const std::int32_t second_computed = second_.num_computed_tokens;
  blocks_.rollback();
  EXPECT_EQ(first_.num_computed_tokens, 8);
  EXPECT_EQ(first_.blocks.size(), 2u);
  EXPECT_EQ(second_.num_computed_tokens, second_computed);
  EXPECT_EQ(blocks_.cached_tokens(first_.tokens, 10), 8);
}

TEST_F(TwoStepsTest, BothFail) {
  blocks_.rollback();
  EXPECT_EQ(first_.num_computed_tokens, 4);
  EXPECT_EQ(first_.blocks.size(), 1u);
  EXPECT_EQ(blocks_.cached_tokens(first_.tokens, 10), 4);
  blocks_.release(first_, false);
  blocks_.release(second_, false);
  EXPECT_EQ(blocks_.num_available(), 16);
}

TEST_F(TwoStepsTest, WhatIsGivenUpIsNotTouchedAgain) {
  blocks_.release(second_, false);
  blocks_.commit();
  EXPECT_TRUE(second_.blocks.empty());
  EXPECT_EQ(second_.num_computed_tokens, 0);
  blocks_.rollback();
  EXPECT_EQ(second_.num_computed_tokens, 0);
  blocks_.release(first_, false);
  EXPECT_EQ(blocks_.num_available(), 16);
}

// A token that a step under way draws fills a block: the block is entered when the token is known.
TEST(BlockManagerTest, ABlockWithAnUnknownTokenIsEnteredLater) {
  BlockManager blocks(8, 4);
  Sequence sequence = make_sequence({1, 2, 3});
  schedule(&blocks, &sequence, 3, /*with_tail=*/false);
  blocks.advance();
  sequence.add(kNoToken);
  ASSERT_EQ(blocks.extend(sequence, 1), 1);
  sequence.num_scheduled_tokens = 1;
  blocks.publish(sequence, false);
  EXPECT_EQ(blocks.tree().num_nodes(), 0);
  blocks.commit();
  sequence.add(4);
  EXPECT_EQ(sequence.tokens, (std::vector<TokenId>{1, 2, 3, 4}));
  blocks.publish(sequence, false);
  EXPECT_EQ(blocks.tree().num_nodes(), 1);
  EXPECT_EQ(sequence.num_computed_tokens, 3);
  blocks.rollback();
  EXPECT_EQ(blocks.tree().num_nodes(), 0);
  EXPECT_EQ(sequence.num_computed_tokens, 3);
  EXPECT_EQ(sequence.size(), 4);
}

TEST(BlockManagerTest, AFailureForgetsTheTokenThatWasUnderWay) {
  BlockManager blocks(8, 4);
  Sequence sequence = make_sequence({1, 2, 3});
  schedule(&blocks, &sequence, 3, /*with_tail=*/false);
  blocks.advance();
  sequence.add(kNoToken);
  blocks.rollback();
  EXPECT_EQ(sequence.tokens, (std::vector<TokenId>{1, 2, 3}));
  EXPECT_EQ(sequence.num_computed_tokens, 0);
}

}  // namespace
}  // namespace batchmill
