#include "engine/expert_router.h"

#include <algorithm>
#include <numeric>

namespace batchmill {
namespace {

// Indexes of the `count` largest values, lower indexes first among equals, in rising order.
std::vector<std::int32_t> largest_indexes(const std::vector<float>& values, std::int32_t count) {
  std::vector<std::int32_t> indexes(values.size());
  std::iota(indexes.begin(), indexes.end(), 0);
  std::stable_sort(indexes.begin(), indexes.end(), [&](std::int32_t a, std::int32_t b) {
    return values[static_cast<std::size_t>(a)] > values[static_cast<std::size_t>(b)];
  });
  indexes.resize(static_cast<std::size_t>(count));
  std::sort(indexes.begin(), indexes.end());
  return indexes;
}

// The sum of a group's two best scores; the only one of a group of one.
float group_score(std::span<const float> scores) {
  if (scores.size() == 1) return scores[0];
  float best = std::max(scores[0], scores[1]);
  float second = std::min(scores[0], scores[1]);
  for (const float score : scores.subspan(2)) {
    second = std::max(second, std::min(best, score));
    best = std::max(best, score);
  }
  return best + second;
}

}  // namespace

void choose_experts(const ExpertConfig& config, std::span<const float> scores,
                    std::span<const float> bias, std::vector<ExpertChoice>* choices) {
  std::vector<float> biased(scores.size());
  for (std::size_t i = 0; i < scores.size(); ++i) biased[i] = scores[i] + bias[i];
  const auto group_size = static_cast<std::size_t>(config.num_experts / config.num_groups);
  std::vector<float> group_scores;
  for (std::size_t first = 0; first < biased.size(); first += group_size) {
    group_scores.push_back(group_score(std::span(biased).subspan(first, group_size)));
  }
  std::vector<std::int32_t> candidates;
  std::vector<float> candidate_scores;
  for (const std::int32_t group : largest_indexes(group_scores, config.num_groups_per_token)) {
    for (std::size_t i = 0; i < group_size; ++i) {
      const std::size_t expert = static_cast<std::size_t>(group) * group_size + i;
      candidates.push_back(static_cast<std::int32_t>(expert));
      candidate_scores.push_back(biased[expert]);
    }
  }
  choices->clear();
  float sum = 0.0f;
  for (const std::int32_t i : largest_indexes(candidate_scores, config.num_experts_per_token)) {
    const std::int32_t expert = candidates[static_cast<std::size_t>(i)];
    const float score = scores[static_cast<std::size_t>(expert)];
    choices->push_back({expert, score});
    sum += score;
  }
  const float norm = config.normalize_weights ? sum + 1e-20f : 1.0f;
  for (ExpertChoice& choice : *choices) choice.weight = choice.weight / norm * config.weights_scale;
}

}  // namespace batchmill
