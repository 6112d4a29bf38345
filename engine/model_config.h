// A model's shapes and constants, independent of the file format.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace batchmill {

class GgufFile;

// What differs between families of decoder-only transformers belongs here as data, so that
// Transformer stays one piece of code. All layers are alike: pre-norm RMSNorm, rotary grouped-query
// attention, SwiGLU.
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
  float rope_linear_factor = 1.0f;  // all rotation frequencies are divided by it
  bool tied_embeddings = false;

  // 2 × layers × kv_heads × head_dim × bytes.
  std::int64_t kv_bytes_per_token(std::int32_t bytes_per_element) const {
    return 2LL * num_layers * num_kv_heads * head_dim * bytes_per_element;
  }
};

// Reads and checks the shapes that a GGUF file states. Throws std::runtime_error naming the key
// that is missing or out of range, or the architecture or feature that is not supported.
ModelConfig read_model_config(const GgufFile& file);

}  // namespace batchmill
