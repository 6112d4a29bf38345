#include "engine/model_config.h"

#include <algorithm>

namespace batchmill {

std::int64_t ModelConfig::kv_bytes_per_token(std::int32_t bytes_per_element) const {
  if (encoder) return 0;
  const std::int64_t row =
      latent ? std::int64_t{latent->cached_dim()} : std::int64_t{2} * num_kv_heads * head_dim;
  return row * num_layers * bytes_per_element;
}

std::int32_t ModelConfig::widest_mlp() const {
  if (!experts) return intermediate_size;
  return std::max(intermediate_size, experts->num_shared_experts * experts->intermediate_size);
}

const char* rope_scaling_name(RopeScaling scaling) {
  switch (scaling) {
    case RopeScaling::kNone:
      return "none";
    case RopeScaling::kLinear:
      return "linear";
    case RopeScaling::kLlama3:
      return "llama3";
    case RopeScaling::kDynamic:
      return "dynamic";
    case RopeScaling::kYarn:
      return "yarn";
  }
  return "none";
}

}  // namespace batchmill
