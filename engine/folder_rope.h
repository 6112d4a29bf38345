// Rotary positions as a model folder's config.json states them, in either spelling: transformers 5
// writes `rope_parameters` (with `rope_theta` inside), older versions `rope_theta` beside
// `rope_scaling` (with `type` or `rope_type`).
#pragma once

#include <optional>

#include "engine/config_object.h"
#include "engine/model_config.h"

namespace batchmill {

// YaRN's magnitude: 0.1 × scale × ln(factor) + 1, or 1 where nothing is stretched.
double stretch_magnitude(double factor, double scale);

// One kind of layer; `parameters` is its object or absent. Throws std::runtime_error naming the
// rope type or key that is not supported.
RopeConfig read_rope(const ConfigObject& config, const std::optional<ConfigObject>& parameters,
                     float theta);

// The object that scales the rotation of all layers, in either spelling.
std::optional<ConfigObject> rope_parameters(const ConfigObject& config);

// read_rope() of that object; without a theta in it or beside it, 10,000.
RopeConfig read_rope(const ConfigObject& config);

}  // namespace batchmill
