// Rotation frequencies of rotary positions. Pure functions.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/model_config.h"

namespace batchmill {

// Radians per position of each pair of dimensions [dim ÷ 2]; for dynamic scaling those of positions
// inside the original context.
std::vector<float> rope_frequencies(const RopeConfig& rope, std::int32_t dim);

// Dynamic NTK scaling: what the base frequency theta is multiplied by for a row at `position`, to
// the power (dim − 2) ÷ dim; frequency i is thus multiplied by it to the power −2i ÷ (dim − 2). 1
// for other scalings and inside the original context.
//
// The row's own position decides, not the longest one of its step: keys then do not depend on how a
// prompt was divided into steps. This is what transformers does when it computes a sequence token
// by token over its cache; in one piece it rotates the whole prompt by the last position's base.
float rope_base_growth(const RopeConfig& rope, std::int32_t position);

// YaRN's factor m = 0.1 × mscale × ln(factor) + 1, and 1 where nothing is stretched.
float yarn_magnitude(float factor, float mscale = 1.0f);

}  // namespace batchmill
