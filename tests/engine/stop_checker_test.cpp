#include "engine/stop_checker.h"

#include <gtest/gtest.h>

#include "tests/support/letter_tokenizer.h"

namespace batchmill::testing {
namespace {

class StopCheckerTest : public ::testing::Test {
 protected:
  // Appends letters until the choice ends; returns how many were taken.
  std::size_t append(StopChecker* checker, std::string_view letters) {
    const auto ids = tokenizer_.encode(letters, false);
    for (std::size_t i = 0; i < ids.size(); ++i) {
      reason_ = checker->append(ids[i]);
      if (reason_ != FinishReason::kNone) return i + 1;
    }
    return ids.size();
  }

  StopChecker checker() { return StopChecker(&tokenizer_, &params_, eos_); }

  LetterTokenizer tokenizer_;
  SamplingParams params_;
  std::vector<TokenId> eos_{kEndToken};
  FinishReason reason_ = FinishReason::kNone;
};

TEST_F(StopCheckerTest, CutsBeforeAStopStringThatSpansTokens) {
  params_.stop = {"def"};
  StopChecker checker = this->checker();
  EXPECT_EQ(append(&checker, "abcdefgh"), 6u);
  EXPECT_EQ(reason_, FinishReason::kStop);
  EXPECT_EQ(checker.num_kept_tokens(), 3);
  EXPECT_EQ(checker.take_text(), "abc");
}

TEST_F(StopCheckerTest, FindsAStopStringThatBeginsAndEndsInsideTokens) {
  params_.stop = {"xST"};
  StopChecker checker = this->checker();
  append(&checker, "ax");
  EXPECT_EQ(checker.append(kStopWordToken), FinishReason::kStop);
  EXPECT_EQ(checker.take_text(), "a");

  params_.stop = {"OPb"};
  StopChecker other = this->checker();
  EXPECT_EQ(other.append(kStopWordToken), FinishReason::kNone);
  EXPECT_EQ(append(&other, "b"), 1u);
  EXPECT_EQ(reason_, FinishReason::kStop);
  EXPECT_EQ(other.num_kept_tokens(), 1);
  EXPECT_EQ(other.take_text(), "ST");
}

TEST_F(StopCheckerTest, CutsBeforeTheFirstOfSeveral) {
  params_.stop = {"P", "TO", "STOPPED"};
  StopChecker checker = this->checker();
  EXPECT_EQ(checker.append(kStopWordToken), FinishReason::kStop);
  EXPECT_EQ(checker.take_text(), "S");
}

TEST_F(StopCheckerTest, FindsAnOverlappingOccurrence) {
  params_.stop = {"aab"};
  StopChecker checker = this->checker();
  EXPECT_EQ(append(&checker, "aaabz"), 4u);
  EXPECT_EQ(checker.take_text(), "a");
}

TEST_F(StopCheckerTest, LeavesTheEndTokensTextOut) {
  StopChecker checker = this->checker();
  append(&checker, "ab");
  EXPECT_EQ(checker.append(kEndToken), FinishReason::kStop);
  EXPECT_EQ(checker.num_kept_tokens(), 2);
  EXPECT_EQ(checker.take_text(), "ab");
}

TEST_F(StopCheckerTest, LeavesAStopTokensTextOut) {
  params_.stop_token_ids = {2};
  StopChecker checker = this->checker();
  EXPECT_EQ(append(&checker, "abcd"), 3u);
  EXPECT_EQ(reason_, FinishReason::kStop);
  EXPECT_EQ(checker.take_text(), "ab");
}

TEST_F(StopCheckerTest, IgnoresTheEndTokenIfAskedTo) {
  params_.ignore_eos = true;
  StopChecker checker = this->checker();
  EXPECT_EQ(checker.append(kEndToken), FinishReason::kNone);
  EXPECT_EQ(append(&checker, "ab"), 2u);
  EXPECT_EQ(checker.take_text(), "ab");
}

TEST_F(StopCheckerTest, DoesNotStopBeforeMinTokens) {
  params_.min_tokens = 3;
  params_.stop = {"b"};
  StopChecker checker = this->checker();
  EXPECT_EQ(append(&checker, "abcdbe"), 5u);
  EXPECT_EQ(checker.take_text(), "abcd");
}

TEST_F(StopCheckerTest, NeverSplitsACharacter) {
  params_.stop = {"é"};
  StopChecker checker = this->checker();
  append(&checker, "a");
  EXPECT_EQ(checker.append(kFirstByteOfEAcute), FinishReason::kNone);
  EXPECT_EQ(checker.append(kLastByteOfEAcute), FinishReason::kStop);
  EXPECT_EQ(checker.take_text(), "a");
}

TEST_F(StopCheckerTest, AnUnfinishedCharacterAtTheEndBecomesAReplacement) {
  StopChecker checker = this->checker();
  append(&checker, "a");
  checker.append(kFirstByteOfEAcute);
  EXPECT_EQ(checker.num_kept_tokens(), 2);
  EXPECT_EQ(checker.take_text(), "a\xEF\xBF\xBD");
}

TEST_F(StopCheckerTest, WorksWithoutATokenizer) {
  params_.stop = {"a"};
  StopChecker checker(nullptr, &params_, eos_);
  EXPECT_EQ(append(&checker, "abc"), 3u);
  EXPECT_EQ(checker.append(kEndToken), FinishReason::kStop);
  EXPECT_EQ(checker.num_kept_tokens(), 3);
  EXPECT_EQ(checker.take_text(), "");
}

}  // namespace
}  // namespace batchmill::testing
