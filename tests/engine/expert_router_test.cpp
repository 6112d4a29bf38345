// Choosing experts, against an exhaustive search.
#include "engine/expert_router.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <random>

namespace batchmill {
namespace {

// The best set of groups and of experts in them, by trying all.
std::vector<ExpertChoice> search(const ExpertConfig& config, const std::vector<float>& scores,
                                 const std::vector<float>& bias) {
  const int size = config.num_experts / config.num_groups;
  const auto biased = [&](int expert) {
    return scores[static_cast<std::size_t>(expert)] + bias[static_cast<std::size_t>(expert)];
  };
  const auto best_set = [](int count, int chosen, const auto& value) {
    unsigned best = 0;
    double best_sum = -1e30;
    for (unsigned set = 0; set < 1u << count; ++set) {
      if (std::popcount(set) != chosen) continue;
      double sum = 0;
      for (int i = 0; i < count; ++i) sum += (set >> i & 1u) != 0 ? value(i) : 0.0;
      if (sum > best_sum) {
        best_sum = sum;
        best = set;
      }
    }
    return best;
  };
  const auto group_value = [&](int group) {
    double best = -1e30;
    for (int a = 0; a < size; ++a) {
      for (int b = 0; b < a; ++b) {
        best = std::max(best, double{biased(group * size + a)} + biased(group * size + b));
      }
    }
    return best;
  };
  const unsigned groups = best_set(config.num_groups, config.num_groups_per_token, group_value);
  const unsigned experts =
      best_set(config.num_experts, config.num_experts_per_token, [&](int expert) {
        return (groups >> (expert / size) & 1u) != 0 ? double{biased(expert)} : -1e20;
      });
  std::vector<ExpertChoice> choices;
  float sum = 0;
  for (int i = 0; i < config.num_experts; ++i) {
    if ((experts >> i & 1u) == 0) continue;
    choices.push_back({i, scores[static_cast<std::size_t>(i)]});
    sum += choices.back().weight;
  }
  for (ExpertChoice& choice : choices) {
    choice.weight *= config.weights_scale / (config.normalize_weights ? sum : 1.0f);
  }
  return choices;
}

TEST(ExpertRouterTest, FindsWhatASearchFinds) {
  std::mt19937 random(3);
  std::uniform_real_distribution<float> uniform(0.0f, 1.0f);
  for (int i = 0; i < 400; ++i) {
    ExpertConfig config;
    config.num_experts = 12;
    config.num_groups = std::vector<int>{1, 2, 3, 4, 6}[random() % 5];
    config.num_groups_per_token = 1 + static_cast<int>(random() % config.num_groups);
    const int in_groups = config.num_groups_per_token * 12 / config.num_groups;
    config.num_experts_per_token = 1 + static_cast<int>(random() % in_groups);
    config.normalize_weights = random() % 2 == 0;
    config.weights_scale = 2.5f;
    std::vector<float> scores(12);
    std::vector<float> bias(12);
    for (float& score : scores) score = uniform(random);
    // Biases that make all scores negative must not let experts of other groups in.
    const float shift = i % 3 == 0 ? -3.0f : 0.0f;
    for (float& value : bias) value = uniform(random) - 0.5f + shift;
    std::vector<ExpertChoice> choices = {{7, 1.0f}};
    choose_experts(config, scores, bias, &choices);
    const std::vector<ExpertChoice> expected = search(config, scores, bias);
    ASSERT_EQ(choices.size(), expected.size());
    for (std::size_t c = 0; c < choices.size(); ++c) {
      ASSERT_EQ(choices[c].expert, expected[c].expert) << "round " << i;
      ASSERT_NEAR(choices[c].weight, expected[c].weight, 1e-5);
    }
  }
}

}  // namespace
}  // namespace batchmill
