#include "engine/folder_rope.h"

#include <cmath>

namespace batchmill {
namespace {

constexpr std::int64_t kMaxContext = 1 << 28;

// The length before stretching. Some configs have it beside the parameters; where nothing says it,
// it is the length that the config states.
std::int32_t original_context(const ConfigObject& config, const ConfigObject& parameters) {
  const char* key = "original_max_position_embeddings";
  if (config.has(key)) return config.integer(key, 1, kMaxContext);
  if (parameters.has(key)) return parameters.integer(key, 1, kMaxContext);
  return config.integer("max_position_embeddings", 1, kMaxContext);
}

float yarn_attention_factor(const ConfigObject& parameters, double factor) {
  if (parameters.has("attention_factor")) return parameters.positive("attention_factor");
  const double scale = parameters.number("mscale", 0.0, 100.0).value_or(0.0);
  const double scale_all = parameters.number("mscale_all_dim", 0.0, 100.0).value_or(0.0);
  if (scale == 0.0 || scale_all == 0.0) return static_cast<float>(stretch_magnitude(factor, 1.0));
  return static_cast<float>(stretch_magnitude(factor, scale) /
                            stretch_magnitude(factor, scale_all));
}

void read_yarn(const ConfigObject& config, const ConfigObject& parameters, RopeConfig* rope) {
  rope->scaling = RopeScaling::kYarn;
  rope->original_context_tokens = original_context(config, parameters);
  rope->factor =
      parameters.has("factor")
          ? parameters.positive("factor")
          : static_cast<float>(config.integer("max_position_embeddings", 1, kMaxContext)) /
                static_cast<float>(rope->original_context_tokens);
  rope->attention_factor = yarn_attention_factor(parameters, rope->factor);
  rope->beta_fast = parameters.positive("beta_fast", 32.0f);
  rope->beta_slow = parameters.positive("beta_slow", 1.0f);
  rope->truncate = parameters.boolean("truncate", true);
}

void read_llama3(const ConfigObject& config, const ConfigObject& parameters, RopeConfig* rope) {
  rope->scaling = RopeScaling::kLlama3;
  rope->factor = parameters.positive("factor");
  rope->original_context_tokens = original_context(config, parameters);
  rope->low_freq_factor = parameters.positive("low_freq_factor");
  rope->high_freq_factor = parameters.positive("high_freq_factor");
  if (rope->high_freq_factor <= rope->low_freq_factor) {
    parameters.fail("'high_freq_factor' is not greater than 'low_freq_factor'");
  }
}

}  // namespace

double stretch_magnitude(double factor, double scale) {
  return factor <= 1.0 ? 1.0 : 0.1 * scale * std::log(factor) + 1.0;
}

RopeConfig read_rope(const ConfigObject& config, const std::optional<ConfigObject>& parameters,
                     float theta) {
  RopeConfig rope;
  rope.theta = theta;
  if (config.number("partial_rotary_factor", 0.0, 1.0).value_or(1.0) != 1.0) {
    config.refuse("partial_rotary_factor");
  }
  if (!parameters) return rope;
  rope.theta = parameters->positive("rope_theta", theta);
  if (parameters->number("partial_rotary_factor", 0.0, 1.0).value_or(1.0) != 1.0) {
    parameters->refuse("partial_rotary_factor");
  }
  const char* key = parameters->has("rope_type") ? "rope_type" : "type";
  const std::string type = parameters->string(key, "default");
  if (type == "yarn") {
    read_yarn(config, *parameters, &rope);
  } else if (type == "llama3") {
    read_llama3(config, *parameters, &rope);
  } else if (type == "linear") {
    rope.scaling = RopeScaling::kLinear;
    rope.factor = parameters->positive("factor");
  } else if (type == "dynamic") {
    rope.scaling = RopeScaling::kDynamic;
    rope.factor = parameters->positive("factor");
    rope.original_context_tokens = config.integer("max_position_embeddings", 1, kMaxContext);
  } else if (type != "default") {
    parameters->refuse(key);
  }
  return rope;
}

std::optional<ConfigObject> rope_parameters(const ConfigObject& config) {
  return config.object(config.has("rope_scaling") ? "rope_scaling" : "rope_parameters");
}

RopeConfig read_rope(const ConfigObject& config) {
  return read_rope(config, rope_parameters(config), config.positive("rope_theta", 10000.0f));
}

}  // namespace batchmill
