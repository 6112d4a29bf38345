#include "engine/embedder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <map>
#include <random>
#include <stdexcept>

#include "tests/support/scripted_encoder.h"

namespace batchmill {
namespace {

using ::testing::ElementsAre;
using testing::ScriptedEncoder;

EngineOptions steps_of(std::int32_t tokens) {
  EngineOptions options;
  options.max_num_batched_tokens = tokens;
  options.max_context_tokens = 1000;
  return options;
}

Request request(RequestId id, std::size_t length) {
  Request made;
  made.id = id;
  made.prompt.assign(length, static_cast<TokenId>(id % 60));
  return made;
}

TEST(EmbedderTest, PacksWholeSequencesWithoutPadding) {
  ScriptedEncoder encoder({.max_sequence_tokens = 50});
  Embedder embedder(steps_of(20), &encoder);
  const std::size_t lengths[] = {12, 9, 5, 3, 30, 1};
  for (RequestId id = 0; id < 6; ++id) embedder.add(request(id, lengths[id]));
  EXPECT_EQ(embedder.stats().waiting_prompt_tokens, 60);
  const auto ids = [](const StepOutput& step) {
    std::vector<RequestId> result;
    for (const RequestOutput& output : step.finished) result.push_back(output.id);
    return result;
  };
  const StepOutput first = embedder.step();
  EXPECT_THAT(ids(first), ElementsAre(0, 2, 3));  // 9 does not fit, those behind it do
  EXPECT_EQ(first.num_tokens, 20);
  EXPECT_THAT(ids(embedder.step()), ElementsAre(1, 5));  // nor does 30, which waits its turn
  EXPECT_THAT(ids(embedder.step()), ElementsAre(4));  // longer than a step: alone
  EXPECT_FALSE(embedder.has_work());
  EXPECT_EQ(embedder.stats().waiting_prompt_tokens, 0);
  EXPECT_EQ(embedder.stats().num_rows, 60);
  EXPECT_TRUE(embedder.step().finished.empty());
}

TEST(EmbedderTest, GivesEachRequestItsOwnVector) {
  std::mt19937 random(3);
  ScriptedEncoder encoder({});
  Embedder embedder(steps_of(100), &encoder);
  std::map<RequestId, std::vector<TokenId>> prompts;
  std::size_t num_finished = 0;
  for (RequestId next = 0; next < 300 || embedder.has_work();) {
    while (next < 300 && random() % 3 != 0) {
      Request made = request(next, 1 + random() % 60);
      for (TokenId& token : made.prompt) token = static_cast<TokenId>(random() % 64);
      prompts[next++] = made.prompt;
      embedder.add(std::move(made));
    }
    for (const RequestOutput& output : embedder.step().finished) {
      ++num_finished;
      EXPECT_EQ(output.embedding, ScriptedEncoder::vector_of(prompts[output.id], 8));
      EXPECT_EQ(output.num_prompt_tokens, static_cast<int>(prompts[output.id].size()));
      EXPECT_EQ(output.num_completion_tokens, 0);
      EXPECT_TRUE(output.error.empty());
    }
  }
  EXPECT_EQ(num_finished, 300u);
}

TEST(EmbedderTest, KeepsEverythingWhenTheDeviceFails) {
  bool broken = true;
  ScriptedEncoder encoder({.before_step = [&](std::int64_t) {
    if (broken) throw std::runtime_error("device failure");
  }});
  Embedder embedder(steps_of(100), &encoder);
  embedder.add(request(1, 10));
  embedder.add(request(2, 10));
  EXPECT_THROW(embedder.step(), std::runtime_error);
  EXPECT_EQ(embedder.stats().waiting_prompt_tokens, 20);
  EXPECT_EQ(embedder.stats().num_rows, 0);
  broken = false;
  EXPECT_EQ(embedder.step().finished.size(), 2u);
}

TEST(EmbedderTest, MakesSmallerStepsAndLargerOnesAgain) {
  ScriptedEncoder encoder({});
  Embedder embedder(steps_of(16), &encoder);
  for (RequestId id = 0; id < 24; ++id) embedder.add(request(id, 4));
  EXPECT_EQ(embedder.step().num_tokens, 16);
  EXPECT_EQ(embedder.shrink_steps(), 8);
  EXPECT_EQ(embedder.step().num_tokens, 8);
  EXPECT_EQ(embedder.grow_steps(), 10);
  EXPECT_EQ(embedder.grow_steps(), 12);
  EXPECT_EQ(embedder.step().num_tokens, 12);
  EXPECT_EQ(embedder.grow_steps(), 14);
  EXPECT_EQ(embedder.grow_steps(), 0);
  EXPECT_EQ(embedder.step().num_tokens, 16);
}

TEST(EmbedderTest, EndsCancelledRequestsOnce) {
  ScriptedEncoder encoder({});
  Embedder embedder(steps_of(100), &encoder);
  embedder.add(request(1, 10));
  embedder.add(request(2, 10));
  embedder.cancel(1);
  embedder.cancel(1);
  embedder.cancel(7);
  const StepOutput step = embedder.step();
  ASSERT_EQ(step.finished.size(), 2u);
  EXPECT_EQ(step.finished[0].id, 1u);
  EXPECT_EQ(step.finished[0].choices.front().finish_reason, FinishReason::kCancelled);
  EXPECT_EQ(step.finished[1].id, 2u);
  EXPECT_EQ(step.num_tokens, 10);
  EXPECT_FALSE(embedder.has_work());
}

TEST(EmbedderTest, RefusesWhatCanNeverRun) {
  ScriptedEncoder encoder({.max_sequence_tokens = 50});
  Embedder embedder(steps_of(100), &encoder);
  EXPECT_EQ(embedder.max_sequence_tokens(), 50);
  EXPECT_THROW(embedder.add(request(1, 0)), std::invalid_argument);
  EXPECT_THROW(embedder.add(request(1, 51)), std::invalid_argument);
  Request outside = request(1, 3);
  outside.prompt[1] = 64;
  EXPECT_THROW(embedder.add(outside), std::invalid_argument);
  EXPECT_FALSE(embedder.has_work());
}

// An encoder whose second sequence comes out as NaN.
class BrokenEncoder : public ScriptedEncoder {
 public:
  using ScriptedEncoder::ScriptedEncoder;
  void embed(const Batch& batch, std::span<float> embeddings) override {
    ScriptedEncoder::embed(batch, embeddings);
    if (batch.num_seqs() > 1) embeddings[8] = std::numeric_limits<float>::quiet_NaN();
  }
};

TEST(EmbedderTest, FailsOnlyTheRequestWhoseVectorIsNoNumber) {
  BrokenEncoder encoder(testing::ScriptedEncoderOptions{});
  Embedder embedder(steps_of(100), &encoder);
  for (RequestId id = 0; id < 3; ++id) embedder.add(request(id, 10));
  const StepOutput step = embedder.step();
  ASSERT_EQ(step.finished.size(), 3u);
  EXPECT_TRUE(step.finished[0].error.empty());
  EXPECT_FALSE(step.finished[1].error.empty());
  EXPECT_TRUE(step.finished[1].embedding.empty());
  EXPECT_TRUE(step.finished[2].error.empty());
}

}  // namespace
}  // namespace batchmill
