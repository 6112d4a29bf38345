// Which experts a token goes to (see ExpertConfig). Pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/model_config.h"

namespace batchmill {

struct ExpertChoice {
  std::int32_t expert = 0;
  float weight = 0.0f;
};

// Chooses from sigmoid `scores` [E]. `bias` [E] takes part in the choice, not in the weights. The
// choices come in the experts' order; of equal scores, the lower group and expert is better.
void choose_experts(const ExpertConfig& config, std::span<const float> scores,
                    std::span<const float> bias, std::vector<ExpertChoice>* choices);

}  // namespace batchmill
