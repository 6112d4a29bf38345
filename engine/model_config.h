// A model's shapes and constants, independent of the file format.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace batchmill {

struct ModelConfig {
  std::string architecture;  // "llama"
  std::string name;  // general.name, for people
  std::int32_t vocab_size = 0;
  std::int32_t hidden_size = 0;
  std::int32_t intermediate_size = 0;
  std::int32_t num_layers = 0;
  std::int32_t num_heads = 0;
  std::int32_t num_kv_heads = 0;
  std::int32_t head_dim = 0;
  std::int32_t rope_dim = 0;  // leading dimensions of a head that are rotated
  std::int32_t max_context_tokens = 0;
  float rms_norm_eps = 1e-5f;
  float rope_theta = 10000.0f;
  bool tied_embeddings = false;

  // 2 × layers × kv_heads × head_dim × bytes.
  std::int64_t kv_bytes_per_token(std::int32_t bytes_per_element) const {
    return 2LL * num_layers * num_kv_heads * head_dim * bytes_per_element;
  }
};

}  // namespace batchmill
