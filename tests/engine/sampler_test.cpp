#include "engine/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "engine/logits_scan.h"

namespace batchmill {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::vector<float> random_logits(std::size_t size, std::uint32_t seed, float spread = 3.0f) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0f, spread);
  std::vector<float> logits(size);
  for (float& x : logits) x = normal(random);
  return logits;
}

// The distribution that the parameters describe, the slow and plain way.
std::vector<double> reference_distribution(std::span<const float> logits,
                                           const SamplingParams& params) {
  const float max = *std::ranges::max_element(logits);
  std::vector<std::pair<double, std::size_t>> order;  // weight, id; best first
  for (std::size_t i = 0; i < logits.size(); ++i) {
    order.emplace_back(std::exp((static_cast<double>(logits[i]) - max) / params.temperature), i);
  }
  std::ranges::stable_sort(order, [](const auto& a, const auto& b) { return a.first > b.first; });
  std::erase_if(order, [&](const auto& entry) { return entry.first < params.min_p * 0.999999; });
  if (params.top_k > 0) {
    order.resize(std::min(order.size(), static_cast<std::size_t>(params.top_k)));
  }
  double total = 0.0;
  for (const auto& [weight, id] : order) total += weight;
  double mass = 0.0;
  std::size_t kept = 0;
  while (kept < order.size() && (params.top_p >= 1.0f || mass < params.top_p * total)) {
    mass += order[kept++].first;
  }
  std::vector<double> distribution(logits.size(), 0.0);
  for (std::size_t i = 0; i < kept; ++i) distribution[order[i].second] = order[i].first / mass;
  return distribution;
}

class SamplerTest : public ::testing::Test {
 protected:
  std::optional<TokenId> sample(std::span<const float> logits) {
    Sampler sampler(static_cast<std::int32_t>(logits.size()));
    return sampler.sample(logits, context());
  }

  SamplingContext context() const {
    SamplingContext context;
    context.params = &params_;
    context.eos_token_ids = eos_;
    context.prompt = prompt_;
    context.generated = generated_;
    return context;
  }

  void expect_draws_follow_the_distribution(std::span<const float> logits) {
    const auto expected = reference_distribution(logits, params_);
    Sampler sampler(static_cast<std::int32_t>(logits.size()));
    constexpr int kDraws = 20'000;
    std::vector<int> counts(logits.size(), 0);
    for (int i = 0; i < kDraws; ++i) {
      params_.seed = static_cast<std::uint64_t>(i);
      const auto token = sampler.sample(logits, context());
      ASSERT_TRUE(token);
      ++counts[static_cast<std::size_t>(*token)];
    }
    for (std::size_t i = 0; i < logits.size(); ++i) {
      const double mean = expected[i] * kDraws;
      if (expected[i] == 0.0) {
        EXPECT_EQ(counts[i], 0) << "token " << i;
      } else {
        EXPECT_NEAR(counts[i], mean, 5.5 * std::sqrt(mean) + 4.0) << "token " << i;
      }
    }
  }

  SamplingParams params_;
  std::vector<TokenId> eos_;
  std::vector<TokenId> prompt_;
  std::vector<TokenId> generated_;
};

TEST_F(SamplerTest, GreedyTakesTheLargestAndOfEqualOnesTheFirst) {
  params_.temperature = 0.0f;
  std::vector<float> logits(300, 1.0f);
  EXPECT_EQ(sample(logits), 0);
  logits[299] = 2.0f;
  EXPECT_EQ(sample(logits), 299);
  logits[131] = 2.0f;
  EXPECT_EQ(sample(logits), 131);
}

TEST_F(SamplerTest, DrawsFollowTemperature) {
  for (const float temperature : {0.3f, 1.0f, 2.5f}) {
    params_.temperature = temperature;
    expect_draws_follow_the_distribution(random_logits(150, 1, 2.0f));
  }
}

TEST_F(SamplerTest, DrawsFollowTopKTopPAndMinP) {
  const auto logits = random_logits(700, 2);
  for (const std::int32_t top_k : {0, 2, 5, 40, 600, 5'000}) {
    for (const float top_p : {0.2f, 0.9f, 1.0f}) {
      for (const float min_p : {0.0f, 0.05f}) {
        SCOPED_TRACE(std::to_string(top_k) + " " + std::to_string(top_p) + " " +
                     std::to_string(min_p));
        params_.top_k = top_k;
        params_.top_p = top_p;
        params_.min_p = min_p;
        expect_draws_follow_the_distribution(logits);
      }
    }
  }
}

TEST_F(SamplerTest, TopKKeepsTheLowestIdsOfEqualLogits) {
  auto logits = random_logits(400, 3);
  for (float& x : logits) x = std::round(x);
  for (const std::int32_t top_k : {3, 7, 50}) {
    params_.top_k = top_k;
    expect_draws_follow_the_distribution(logits);
  }
}

TEST_F(SamplerTest, AVeryLowTemperatureIsGreedy) {
  const auto logits = random_logits(100, 4);
  const auto best = static_cast<TokenId>(std::ranges::max_element(logits) - logits.begin());
  for (const float temperature : {1e-45f, 1e-30f, 1e-4f}) {
    params_.temperature = temperature;
    EXPECT_EQ(sample(logits), best) << temperature;
  }
}

TEST_F(SamplerTest, ADrawDependsOnSeedChoiceAndPositionOnly) {
  const auto logits = random_logits(5'000, 5);
  Sampler used(5'000);
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    params_.seed = seed;
    params_.top_k = 100;
    used.sample(random_logits(5'000, 99), context());
    EXPECT_EQ(used.sample(logits, context()), sample(logits));
  }
  params_.top_k = 0;
  const auto draws = [&](int choice, std::size_t position) {
    std::vector<std::optional<TokenId>> tokens;
    generated_.assign(position, 0);
    for (std::uint64_t seed = 0; seed < 10; ++seed) {
      params_.seed = seed;
      SamplingContext context = this->context();
      context.choice = choice;
      tokens.push_back(used.sample(logits, context));
    }
    return tokens;
  };
  EXPECT_EQ(draws(1, 2), draws(1, 2));
  EXPECT_NE(draws(1, 2), draws(0, 2));
  EXPECT_NE(draws(1, 2), draws(1, 1));
}

TEST_F(SamplerTest, BiasMovesTheChoice) {
  params_.temperature = 0.0f;
  params_.logit_bias = {{3, 100.0f}, {1'000'000, 100.0f}, {-5, 100.0f}};
  EXPECT_EQ(sample(random_logits(10, 6)), 3);
  params_.logit_bias = {{0, -kInfinity}};
  EXPECT_EQ(sample(std::vector<float>{5.0f, 1.0f}), 1);
}

TEST_F(SamplerTest, RepetitionPenaltyWeighsPromptAndGeneratedTokensOnce) {
  params_.temperature = 0.0f;
  params_.repetition_penalty = 2.0f;
  prompt_ = {0, 0, 0};
  generated_ = {1, 0};
  // 4.5 / 2 and 4 / 2, each once, against 2.2; a negative logit sinks.
  EXPECT_EQ(sample(std::vector<float>{4.5f, 4.0f, 2.2f}), 0);
  EXPECT_EQ(sample(std::vector<float>{4.3f, 4.0f, 2.2f}), 2);
  EXPECT_EQ(sample(std::vector<float>{-1.0f, -1.0f, -1.5f}), 2);
}

TEST_F(SamplerTest, AnyRepetitionPenaltyLeavesNumbers) {
  params_.temperature = 0.0f;
  prompt_ = {0, 1};
  params_.min_tokens = 1;
  eos_ = {1};
  for (const float penalty : {0.0f, 1e-45f, 1e-30f, 1e30f, 3e38f, kInfinity}) {
    params_.repetition_penalty = penalty;
    EXPECT_EQ(sample(std::vector<float>{9.0f, 5.0f, 1.0f}), penalty < 1.0f ? 0 : 2) << penalty;
    EXPECT_EQ(sample(std::vector<float>{-9.0f, 5.0f, -10.0f}), penalty < 1.0f ? 0 : 2) << penalty;
  }
}

TEST_F(SamplerTest, PresenceAndFrequencyPenaltiesCountGeneratedTokensOnly) {
  params_.temperature = 0.0f;
  prompt_ = {2, 2, 2};
  generated_ = {0, 0, 0, 1};
  params_.frequency_penalty = 0.5f;
  EXPECT_EQ(sample(std::vector<float>{3.0f, 2.2f, 1.6f}), 1);
  params_.presence_penalty = 0.2f;
  EXPECT_EQ(sample(std::vector<float>{3.0f, 2.2f, 1.6f}), 2);
  params_.frequency_penalty = 0.0f;
  EXPECT_EQ(sample(std::vector<float>{3.0f, 2.2f, 1.6f}), 0);
  // Scratch counts are clean again.
  generated_ = {};
  EXPECT_EQ(sample(std::vector<float>{3.0f, 2.9f, 1.6f}), 0);
}

TEST_F(SamplerTest, NoEndBeforeMinTokens) {
  params_.temperature = 0.0f;
  params_.min_tokens = 2;
  params_.stop_token_ids = {1};
  eos_ = {0};
  const std::vector<float> logits{3.0f, 2.0f, 1.0f};
  EXPECT_EQ(sample(logits), 2);
  generated_ = {2};
  EXPECT_EQ(sample(logits), 2);
  generated_ = {2, 2};
  EXPECT_EQ(sample(logits), 0);
}

TEST_F(SamplerTest, BrokenLogitsGiveNoToken) {
  for (const float temperature : {0.0f, 1.0f}) {
    params_.temperature = temperature;
    for (const std::size_t place : {0u, 5u, 63u, 64u, 129u}) {
      for (const float bad : {kNan, kInfinity}) {
        auto logits = random_logits(130, 7);
        logits[place] = bad;
        EXPECT_EQ(sample(logits), std::nullopt);
        EXPECT_FALSE(Sampler(130).logprobs(logits, 0, 5));
      }
    }
    EXPECT_EQ(sample(std::vector<float>(100, -kInfinity)), std::nullopt);
    auto logits = std::vector<float>(100, -kInfinity);
    logits[70] = -5.0f;
    EXPECT_EQ(sample(logits), 70);
  }
  params_.min_tokens = 1;
  eos_ = {0, 1};
  EXPECT_EQ(sample(std::vector<float>{1.0f, 2.0f}), std::nullopt);
}

TEST_F(SamplerTest, ExtremeLogitsAreSampledWithoutOverflow) {
  auto logits = random_logits(200, 8, 1e37f);
  const auto best = static_cast<TokenId>(std::ranges::max_element(logits) - logits.begin());
  EXPECT_EQ(sample(logits), best);
  params_.top_p = 0.5f;
  EXPECT_EQ(sample(logits), best);
  params_.top_k = 20;
  EXPECT_EQ(sample(logits), best);
}

TEST_F(SamplerTest, LogprobsAreTheLogSoftmaxOfTheUnmodifiedLogits) {
  for (const std::size_t size : {3u, 64u, 1'000u, 50'001u}) {
    auto logits = random_logits(size, 9, 5.0f);
    logits[1] = logits[2] = 30.0f;
    long double sum = 0.0L;
    for (const float x : logits) sum += std::exp(static_cast<long double>(x));
    const auto expected = [&](TokenId token) {
      return static_cast<double>(logits[static_cast<std::size_t>(token)] - std::log(sum));
    };
    Sampler sampler(static_cast<std::int32_t>(size));
    const auto found = sampler.logprobs(logits, 0, 20);
    ASSERT_TRUE(found);
    EXPECT_EQ(found->chosen.token, 0);
    EXPECT_NEAR(found->chosen.logprob, expected(0), 4e-6);
    ASSERT_EQ(found->top.size(), std::min<std::size_t>(20, size));
    EXPECT_EQ(found->top[0].token, 1);
    EXPECT_EQ(found->top[1].token, 2);
    std::vector<TokenId> order(size);
    for (std::size_t i = 0; i < size; ++i) order[i] = static_cast<TokenId>(i);
    std::ranges::stable_sort(order, [&](TokenId a, TokenId b) {
      return logits[static_cast<std::size_t>(a)] > logits[static_cast<std::size_t>(b)];
    });
    for (std::size_t i = 0; i < found->top.size(); ++i) {
      EXPECT_EQ(found->top[i].token, order[i]);
      EXPECT_NEAR(found->top[i].logprob, expected(order[i]), 4e-6);
    }
  }
}

// Maxima that a product made part by part lead to the same tokens, also when the best are equal.
TEST(LogitsScanTest, PartsLeadToTheTokensOfTheWhole) {
  constexpr std::size_t kSize = 1000;
  for (std::uint32_t seed = 0; seed < 200; ++seed) {
    std::vector<float> logits = random_logits(kSize, seed);
    if (seed % 4 == 1) {
      for (float& x : logits) x = std::round(x);  // many of them equal
    }
    if (seed % 4 == 2) logits[seed * 5 % kSize] = seed % 8 == 2 ? kNan : kInfinity;
    if (seed % 4 == 3) logits[seed * 5 % kSize] = -kInfinity;
    std::vector<float> maxima(num_scan_blocks(kSize));
    const std::size_t boundary = kScanBlock * (1 + seed % (kSize / kScanBlock));
    scan_blocks(std::span(logits).first(boundary), maxima);
    scan_blocks(std::span(logits).subspan(boundary),
                std::span(maxima).subspan(boundary / kScanBlock));
    for (const float temperature : {0.0f, 0.8f}) {
      for (const std::int32_t top_k : {0, 5}) {
        SamplingParams params;
        params.temperature = temperature;
        params.top_k = top_k;
        params.seed = seed;
        SamplingContext context;
        context.params = &params;
        Sampler sampler(kSize);
        const auto expected = sampler.sample(logits, context);
        EXPECT_EQ(expected.has_value(), seed % 4 != 2);
        EXPECT_EQ(sampler.sample(logits, context, maxima), expected);
        if (expected && temperature == 0.0f) {
          EXPECT_EQ(*expected, std::ranges::max_element(logits) - logits.begin());
        }
      }
    }
  }
}

TEST(LogitsScanTest, ExponentialsAreAsExactAsStated) {
  std::vector<float> logits;
  for (int i = 0; i < 100'000; ++i) logits.push_back(static_cast<float>(-i) * 0.00095f);
  std::vector<float> weights(logits.size());
  std::vector<double> sums(num_scan_blocks(logits.size()));
  const double total = exp_weights(logits, 0.0f, 1.0f, weights, sums);
  double expected_total = 0.0;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    const double expected = std::exp(static_cast<double>(logits[i]));
    expected_total += expected;
    if (logits[i] > -87.0f) {
      ASSERT_NEAR(weights[i] / expected, 1.0, 3e-7) << logits[i];
    } else {
      ASSERT_EQ(weights[i], 0.0f);
    }
  }
  EXPECT_NEAR(total / expected_total, 1.0, 1e-7);
}

}  // namespace
}  // namespace batchmill
