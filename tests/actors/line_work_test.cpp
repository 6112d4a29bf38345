#include "actors/line_work.h"

#include <gtest/gtest.h>

#include <random>

namespace batchmill {
namespace {

TEST(LineWorkTest, ComesBackAsItWas) {
  LineWork work;
  work.custom_id = "id \xF0\x9F\x98\x80";
  work.endpoint = Endpoint::kCompletions;
  work.requested_model = "gpt-4o-mini";
  work.num_choices = 3;
  work.echo = true;
  work.echo_texts = {"a", "b"};
  work.return_token_ids = true;
  work.truncation = Truncation{3, 7};
  work.queued_us = 1'700'000'000'000'001;
  work.params.temperature = 0.7f;
  work.params.top_p = 0.1f;
  work.params.top_k = 40;
  work.params.logit_bias = {{5, -100.0f}, {17, 2.5f}};
  work.params.seed = ~std::uint64_t{0};
  work.params.max_tokens = 12;
  work.params.min_tokens = 3;
  work.params.ignore_eos = true;
  work.params.stop_token_ids = {1, 2};
  work.params.stop = {"\n\n", "end"};
  work.params.logprobs = 0;
  work.params.prompt_logprobs = true;

  const LineWork back = decode_line_work(encode_line_work(work));
  EXPECT_EQ(back.custom_id, work.custom_id);
  EXPECT_EQ(back.endpoint, work.endpoint);
  EXPECT_EQ(back.requested_model, work.requested_model);
  EXPECT_EQ(back.num_choices, 3);
  EXPECT_TRUE(back.echo);
  EXPECT_EQ(back.echo_texts, work.echo_texts);
  EXPECT_TRUE(back.return_token_ids);
  EXPECT_EQ(back.truncation, work.truncation);
  EXPECT_EQ(back.queued_us, work.queued_us);
  EXPECT_EQ(back.params.temperature, 0.7f);
  EXPECT_EQ(back.params.top_p, 0.1f);
  EXPECT_EQ(back.params.top_k, 40);
  EXPECT_EQ(back.params.logit_bias, work.params.logit_bias);
  EXPECT_EQ(back.params.seed, work.params.seed);
  EXPECT_EQ(back.params.max_tokens, 12);
  EXPECT_EQ(back.params.min_tokens, 3);
  EXPECT_TRUE(back.params.ignore_eos);
  EXPECT_EQ(back.params.stop_token_ids, work.params.stop_token_ids);
  EXPECT_EQ(back.params.stop, work.params.stop);
  EXPECT_EQ(back.params.logprobs, 0);
  EXPECT_TRUE(back.params.prompt_logprobs);
}

TEST(LineWorkTest, RefusesBrokenBytesWithoutCrashing) {
  const std::string bytes = encode_line_work({});
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_THROW(decode_line_work(bytes.substr(0, size)), std::runtime_error);
  }
  std::mt19937 random(3);
  for (int round = 0; round < 2000; ++round) {
    std::string broken = bytes;
    broken[random() % broken.size()] = static_cast<char>(random());
    try {
      decode_line_work(broken);
    } catch (const std::runtime_error&) {
    }
  }
}

TEST(LineWorkTest, RefusesNestingThatNoWorkHas) {
  EXPECT_THROW(decode_line_work(std::string(1'000'000, '\x91')), std::runtime_error);
  LineWork work;
  work.endpoint = static_cast<Endpoint>(4);
  EXPECT_THROW(decode_line_work(encode_line_work(work)), std::runtime_error);
}

}  // namespace
}  // namespace batchmill
