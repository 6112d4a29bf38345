// A model's shapes and constants, independent of the file format. What differs between families is
// data here, so that Transformer stays one piece of code.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace batchmill {

enum class NormKind : std::uint8_t {
  kRms,  // x ÷ rms(x) × weight
  kLayer,  // (x − mean) ÷ deviation × weight + bias
};

// Where a layer's norms stand around a sublayer f (attention or MLP).
enum class NormPlacement : std::uint8_t {
  kBefore,  // x + f(norm(x))
  kAround,  // x + norm(f(norm(x)))
  kAfter,  // norm(x + f(x))
};

enum class Activation : std::uint8_t { kSilu, kGeluTanh, kGeluErf };

enum class PositionKind : std::uint8_t {
  kRotary,  // q and k are rotated
  kLearned,  // a table's row is added to the embedding
  kSinusoidal,  // sine in even and cosine in odd dimensions is added (Vaswani et al. 2017)
};

enum class RopeScaling : std::uint8_t { kNone, kLinear, kLlama3, kDynamic, kYarn };

// Rotation frequencies of a kind of layer. Fields that the scaling does not use keep their
// defaults.
struct RopeConfig {
  float theta = 10000.0f;
  RopeScaling scaling = RopeScaling::kNone;
  float factor = 1.0f;
  std::int32_t original_context_tokens = 0;
  float low_freq_factor = 1.0f;  // llama3
  float high_freq_factor = 4.0f;  // llama3
  float beta_fast = 32.0f;  // yarn
  float beta_slow = 1.0f;  // yarn
  bool truncate = true;  // yarn: whole dimensions bound the correction range
  float attention_factor = 1.0f;  // yarn: multiplies cosine and sine
  bool operator==(const RopeConfig&) const = default;
};

struct LayerConfig {
  std::int32_t window_tokens = 0;  // > 0: a row sees itself and window − 1 tokens before it
  std::int32_t rope = 0;  // index into ModelConfig::ropes
  bool experts = false;  // the MLP is a mixture of experts
  bool operator==(const LayerConfig&) const = default;
};

// Multi-head latent attention (DeepSeek V2, V3): keys and values come from one latent vector per
// token, which is what the cache holds, with one rotated key part that all heads share.
struct LatentAttention {
  std::int32_t q_lora_rank = 0;  // 0: q is projected directly
  std::int32_t kv_lora_rank = 0;
  std::int32_t nope_dim = 0;  // of a query or key head, not rotated
  std::int32_t rope_dim = 0;  // of a query or key head, rotated
  std::int32_t value_dim = 0;
  std::int32_t cached_dim() const { return kv_lora_rank + rope_dim; }
  bool operator==(const LatentAttention&) const = default;
};

// Routing as in DeepSeek V3: sigmoid scores, a bias for the choice only, groups ranked by their two
// best.
struct ExpertConfig {
  std::int32_t num_experts = 0;
  std::int32_t num_experts_per_token = 0;
  std::int32_t num_shared_experts = 0;
  std::int32_t intermediate_size = 0;  // of one expert
  std::int32_t num_groups = 1;
  std::int32_t num_groups_per_token = 1;
  bool normalize_weights = true;
  float weights_scale = 1.0f;
  bool operator==(const ExpertConfig&) const = default;
};

struct ModelConfig {
  std::string architecture;  // GGUF's general.architecture: "llama", "qwen2", "gemma3", …
  std::string name;  // for people
  std::int32_t vocab_size = 0;
  std::int32_t hidden_size = 0;
  std::int32_t intermediate_size = 0;
  std::int32_t num_layers = 0;
  std::int32_t num_heads = 0;
  std::int32_t num_kv_heads = 0;
  std::int32_t head_dim = 0;  // with latent attention: nope + rope
  std::int32_t max_context_tokens = 0;

  NormKind norm = NormKind::kRms;
  NormPlacement norm_placement = NormPlacement::kBefore;
  float norm_eps = 1e-5f;
  Activation activation = Activation::kSilu;
  bool gated_mlp = true;  // down(act(gate) × up), else down(act(up))
  bool qkv_bias = false;
  bool attention_output_bias = false;
  bool mlp_bias = false;
  bool qk_norm = false;  // RMS norm of each head of q and k before the rotation
  float attention_scale = 0.0f;  // multiplies q · k
  float embedding_scale = 1.0f;
  bool tied_embeddings = false;
  // The file's rows of q and k stand per head in the order that rotates neighbours (2i, 2i + 1).
  bool interleaved_qk_rows = false;

  PositionKind positions = PositionKind::kRotary;
  std::vector<RopeConfig> ropes;  // at least one if positions are rotary
  std::vector<LayerConfig> layers;  // [num_layers]

  std::optional<LatentAttention> latent;
  std::optional<ExpertConfig> experts;

  // Encoders (BERT): every row sees the whole sequence; an embedding is the mean of the last hidden
  // states, scaled to unit length. There is no output head.
  bool encoder = false;
  bool embedding_norm = false;  // the sum of the embeddings is normed
  std::int32_t num_token_types = 0;  // > 0: row 0 of a table of so many is added

  // Width of the widest MLP that every token runs through: of a dense layer or the shared experts.
  std::int32_t widest_mlp() const;

  // Dimensions of a head that positions rotate.
  std::int32_t rotated_dim() const { return latent ? latent->rope_dim : head_dim; }

  // 2 × layers × kv_heads × head_dim × bytes, of single bytes with their scales (kv_cache.h); with
  // latent attention layers × (kv_lora_rank + rope_dim) × bytes; nothing for an encoder.
  std::int64_t kv_bytes_per_token(std::int32_t bytes_per_element) const;
  bool operator==(const ModelConfig&) const = default;
};

// How messages and people name it: "llama3", "yarn", …; "none".
const char* rope_scaling_name(RopeScaling scaling);

}  // namespace batchmill
