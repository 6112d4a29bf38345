#include "engine/model_config.h"

#include <algorithm>

#include "engine/kv_cache.h"

namespace batchmill {

std::int64_t ModelConfig::kv_bytes_per_token(std::int32_t bytes_per_element) const {
  if (encoder) return 0;
  if (latent) return std::int64_t{latent->cached_dim()} * num_layers * bytes_per_element;
  return std::int64_t{2} * num_layers * num_kv_heads *
         kv_token_bytes(head_dim, static_cast<std::size_t>(bytes_per_element));
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
