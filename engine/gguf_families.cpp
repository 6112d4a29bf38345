#include "engine/gguf_families.h"

#include <cmath>
#include <string>

#include "engine/rope.h"

namespace batchmill {
namespace {

float inverse_root(std::int32_t dim) { return 1.0f / std::sqrt(static_cast<float>(dim)); }

// Head size and softmax scale, where queries, keys and values are alike.
void read_heads(const GgufKeys& keys, ModelConfig* config) {
  const GgufFile& file = keys.file();
  const std::int64_t derived = config->hidden_size / config->num_heads;
  config->head_dim = keys.integer("attention.key_length", derived, kMaxHeadDim);
  if (keys.integer("attention.value_length", config->head_dim, kMaxHeadDim) != config->head_dim) {
    file.fail("keys and values of different head sizes are not supported");
  }
  const std::int32_t rotated = keys.integer("rope.dimension_count", config->head_dim, kMaxHeadDim);
  if (rotated != config->head_dim || config->head_dim % 2 != 0) {
    file.fail("rotating " + std::to_string(rotated) + " of " + std::to_string(config->head_dim) +
              " head dimensions is not supported");
  }
  config->attention_scale = inverse_root(config->head_dim);
}

// For families whose files name a window only by mistake.
void refuse_window(const GgufKeys& keys, const ModelConfig& config) {
  const std::int64_t window = keys.count("attention.sliding_window");
  if (window > 0 && window < config.max_context_tokens) {
    keys.file().fail("sliding-window attention is not supported in architecture '" +
                     config.architecture + "'");
  }
}

void refuse_experts(const GgufKeys& keys, const ModelConfig& config) {
  if (keys.count("expert_count") > 0) {
    keys.file().fail("mixtures of experts are not supported in architecture '" +
                     config.architecture + "'");
  }
}

// Llama 3's scaling has no key: the file holds the factors as a tensor.
RopeConfig read_rope(const GgufKeys& keys) {
  RopeConfig rope;
  rope.theta = keys.positive("rope.freq_base", 10000.0);
  const std::string scaling =
      keys.string("rope.scaling.type", keys.has("rope.scale_linear") ? "linear" : "none");
  if (scaling == "linear") {
    rope.scaling = RopeScaling::kLinear;
    rope.factor = keys.positive("rope.scaling.factor", keys.positive("rope.scale_linear", 1.0));
  } else if (scaling == "yarn") {
    rope.scaling = RopeScaling::kYarn;
    rope.factor = keys.positive("rope.scaling.factor", 1.0);
    rope.original_context_tokens =
        keys.required("rope.scaling.original_context_length", kMaxContext);
    rope.beta_fast = keys.positive("rope.scaling.yarn_beta_fast", 32.0);
    rope.beta_slow = keys.positive("rope.scaling.yarn_beta_slow", 1.0);
    rope.attention_factor = keys.positive("rope.scaling.attn_factor", 1.0) *
                            keys.positive("rope.scaling.yarn_attn_factor", 1.0) *
                            yarn_magnitude(rope.factor);
    if (keys.positive("rope.scaling.yarn_ext_factor", 1.0) != 1.0f) {
      keys.file().fail("YaRN with an extrapolation factor other than 1 is not supported");
    }
  } else if (scaling != "none") {
    keys.file().fail("rope scaling '" + scaling + "' is not supported");
  }
  return rope;
}

// Llama 1 to 3.3 and Mistral. Biases are there if the first layer has them.
void read_llama(const GgufKeys& keys, ModelConfig* config) {
  const GgufFile& file = keys.file();
  refuse_experts(keys, *config);
  read_heads(keys, config);
  config->norm_eps = keys.positive("attention.layer_norm_rms_epsilon", 1e-5);
  config->ropes = {read_rope(keys)};
  config->interleaved_qk_rows = true;
  config->qkv_bias = file.find_tensor("blk.0.attn_q.bias") != nullptr;
  config->attention_output_bias = file.find_tensor("blk.0.attn_output.bias") != nullptr;
  config->mlp_bias = file.find_tensor("blk.0.ffn_up.bias") != nullptr;
  const std::int64_t window = keys.count("attention.sliding_window");
  if (window > 0 && window < config->max_context_tokens) {
    for (LayerConfig& layer : config->layers) {
      layer.window_tokens = static_cast<std::int32_t>(window);
    }
  }
}

void read_qwen(const GgufKeys& keys, ModelConfig* config) {
  refuse_experts(keys, *config);
  refuse_window(keys, *config);
  read_heads(keys, config);
  config->norm_eps = keys.positive("attention.layer_norm_rms_epsilon", 1e-6);
  config->ropes = {read_rope(keys)};
}

void read_qwen2(const GgufKeys& keys, ModelConfig* config) {
  read_qwen(keys, config);
  config->qkv_bias = true;
}

void read_qwen3(const GgufKeys& keys, ModelConfig* config) {
  read_qwen(keys, config);
  config->qk_norm = true;
}

void read_gpt2(const GgufKeys& keys, ModelConfig* config) {
  read_heads(keys, config);
  config->norm = NormKind::kLayer;
  config->norm_eps = keys.positive("attention.layer_norm_epsilon", 1e-5);
  config->activation = Activation::kGeluTanh;
  config->gated_mlp = false;
  config->qkv_bias = config->attention_output_bias = config->mlp_bias = true;
  config->positions = PositionKind::kLearned;
}

// Sliding layers rotate by a base of their own, which files do not say.
void read_gemma3(const GgufKeys& keys, ModelConfig* config) {
  constexpr std::int32_t kLayersOf27B = 62;
  read_heads(keys, config);
  config->norm_placement = NormPlacement::kAround;
  config->norm_eps = keys.positive("attention.layer_norm_rms_epsilon", 1e-6);
  config->activation = Activation::kGeluTanh;
  config->qk_norm = true;
  config->embedding_scale = std::sqrt(static_cast<float>(config->hidden_size));
  // The query scale is the head size, but for the largest model the width per head.
  if (config->num_layers == kLayersOf27B) {
    config->attention_scale = inverse_root(config->hidden_size / config->num_heads);
  }
  if (keys.has("final_logit_softcapping") || keys.has("attn_logit_softcapping")) {
    keys.file().fail("soft-capped logits are not supported");
  }
  RopeConfig sliding;
  sliding.theta = keys.positive("rope.freq_base_swa", 10000.0);
  config->ropes = {read_rope(keys), sliding};
  const std::int32_t window = keys.required("attention.sliding_window", kMaxContext);
  const std::int32_t period = keys.integer("attention.sliding_window_pattern", 6, kMaxLayers);
  for (std::int32_t i = 0; i < config->num_layers; ++i) {
    if ((i + 1) % period == 0) continue;  // a full layer
    config->layers[static_cast<std::size_t>(i)] = {.window_tokens = window, .rope = 1};
  }
}

// Keys and values from one cached vector per token.
LatentAttention read_latent(const GgufKeys& keys, ModelConfig* config) {
  LatentAttention latent;
  // Files whose attention is already absorbed state the cached sizes as key and value lengths.
  const bool absorbed = keys.has("attention.key_length_mla");
  config->head_dim =
      keys.required(absorbed ? "attention.key_length_mla" : "attention.key_length", kMaxHeadDim);
  latent.value_dim = keys.required(
      absorbed ? "attention.value_length_mla" : "attention.value_length", kMaxHeadDim);
  latent.q_lora_rank =
      keys.has("attention.q_lora_rank") ? keys.required("attention.q_lora_rank", kMaxWidth) : 0;
  latent.kv_lora_rank = keys.required("attention.kv_lora_rank", kMaxWidth);
  latent.rope_dim = keys.required("rope.dimension_count", kMaxHeadDim);
  latent.nope_dim = config->head_dim - latent.rope_dim;
  if (latent.nope_dim < 1 || latent.rope_dim % 2 != 0) {
    keys.file().fail("rotating " + std::to_string(latent.rope_dim) + " of " +
                     std::to_string(config->head_dim) + " head dimensions is not supported");
  }
  return latent;
}

ExpertConfig read_experts(const GgufKeys& keys) {
  constexpr std::int64_t kSigmoid = 2;
  const GgufFile& file = keys.file();
  ExpertConfig experts;
  experts.num_experts = keys.required("expert_count", kMaxExperts);
  experts.num_experts_per_token = keys.required("expert_used_count", experts.num_experts);
  experts.num_shared_experts =
      keys.has("expert_shared_count") ? keys.required("expert_shared_count", kMaxExperts) : 0;
  experts.intermediate_size = keys.required("expert_feed_forward_length", kMaxWidth);
  // Files of DeepSeek V3 and R1 from before these keys were written have 256 experts.
  const bool is_v3 = experts.num_experts == 256;
  experts.num_groups = keys.integer("expert_group_count", is_v3 ? 8 : 1, experts.num_experts);
  experts.num_groups_per_token =
      keys.integer("expert_group_used_count", is_v3 ? 4 : 1, experts.num_groups);
  experts.normalize_weights = keys.flag("expert_weights_norm", false);
  experts.weights_scale = keys.positive("expert_weights_scale", 1.0);
  if (keys.count("expert_gating_func") != kSigmoid) {
    file.fail("experts chosen by softmax scores (DeepSeek V2) are not supported");
  }
  if (experts.num_experts % experts.num_groups != 0 ||
      experts.num_experts_per_token >
          experts.num_experts / experts.num_groups * experts.num_groups_per_token) {
    file.fail(std::to_string(experts.num_experts) + " experts in " +
              std::to_string(experts.num_groups) + " groups cannot be chosen from as stated");
  }
  return experts;
}

void read_deepseek2(const GgufKeys& keys, ModelConfig* config) {
  config->norm_eps = keys.positive("attention.layer_norm_rms_epsilon", 1e-6);
  config->interleaved_qk_rows = true;
  config->latent = read_latent(keys, config);
  config->experts = read_experts(keys);
  const auto dense = static_cast<std::size_t>(keys.count("leading_dense_block_count"));
  for (std::size_t i = dense; i < config->layers.size(); ++i) config->layers[i].experts = true;
  RopeConfig rope = read_rope(keys);
  config->attention_scale = inverse_root(config->head_dim);
  if (rope.scaling == RopeScaling::kYarn) {
    // The magnitude goes into the softmax scale instead, as the multiplier says.
    const float multiplier = static_cast<float>(keys.number("rope.scaling.yarn_log_multiplier", 0));
    const float magnitude = 1.0f + multiplier * std::log(rope.factor);
    rope.attention_factor /= yarn_magnitude(rope.factor);
    config->attention_scale *= magnitude * magnitude;
  }
  config->ropes = {rope};
}

void read_bert(const GgufKeys& keys, ModelConfig* config) {
  constexpr std::int64_t kMean = 1;
  const GgufFile& file = keys.file();
  if (keys.flag("attention.causal", true)) {
    file.fail("a causal model of architecture 'bert' is not supported");
  }
  if (keys.count("pooling_type") != kMean) {
    file.fail("pooling type " + std::to_string(keys.count("pooling_type")) +
              " is not supported, only 1, the mean");
  }
  read_heads(keys, config);
  config->norm = NormKind::kLayer;
  config->norm_placement = NormPlacement::kAfter;
  config->norm_eps = keys.positive("attention.layer_norm_epsilon", 1e-12);
  config->activation = Activation::kGeluErf;
  config->gated_mlp = false;
  config->qkv_bias = config->attention_output_bias = config->mlp_bias = true;
  config->positions = PositionKind::kLearned;
  config->encoder = true;
  config->embedding_norm = true;
  const GgufTensor* types = file.find_tensor("token_types.weight");
  config->num_token_types = types == nullptr ? 0 : static_cast<std::int32_t>(types->num_rows());
}

struct Family {
  std::string_view architecture;
  GgufFamilyReader read;
};

constexpr Family kFamilies[] = {{"llama", read_llama},   {"qwen2", read_qwen2},
                                {"qwen3", read_qwen3},   {"gpt2", read_gpt2},
                                {"gemma3", read_gemma3}, {"deepseek2", read_deepseek2},
                                {"bert", read_bert}};

}  // namespace

GgufFamilyReader find_gguf_family(std::string_view architecture) {
  for (const Family& family : kFamilies) {
    if (family.architecture == architecture) return family.read;
  }
  return nullptr;
}

}  // namespace batchmill
