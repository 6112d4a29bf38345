#include "engine/weight_specs.h"

namespace batchmill {
namespace {

// The tensors of one model, as they are named in turn.
class SpecList {
 public:
  explicit SpecList(const ModelConfig& config) : config_(config) {}

  void add(std::string name, std::int64_t rows, std::int64_t cols) {
    specs.push_back({std::move(name), rows, cols});
  }

  void matrix(std::int32_t layer, const char* part, std::int64_t rows, std::int64_t cols,
              bool bias = false) {
    add(layer_tensor(layer, part), rows, cols);
    if (bias) add(layer_tensor(layer, part, ".bias"), 1, rows);
  }

  // Null: there is none.
  void norm(std::int32_t layer, const char* part) {
    if (part == nullptr) return;
    add(layer_tensor(layer, part), 1, config_.hidden_size);
    if (config_.norm == NormKind::kLayer) {
      add(layer_tensor(layer, part, ".bias"), 1, config_.hidden_size);
    }
  }

  void norm(const std::string& part) {
    add(part + ".weight", 1, config_.hidden_size);
    if (config_.norm == NormKind::kLayer) add(part + ".bias", 1, config_.hidden_size);
  }

  std::vector<TensorSpec> specs;

 private:
  const ModelConfig& config_;
};

void add_head_attention(SpecList* list, const ModelConfig& config, const TensorDivision& division,
                        std::int32_t layer) {
  const std::int64_t hidden = config.hidden_size;
  const std::int64_t q_rows = std::int64_t{config.num_heads} * config.head_dim;
  const std::int64_t kv_rows = std::int64_t{config.num_kv_heads} * config.head_dim;
  if (division.joined_qkv) {
    list->matrix(layer, "attn_qkv", q_rows + 2 * kv_rows, hidden, config.qkv_bias);
  } else {
    list->matrix(layer, "attn_q", q_rows, hidden, config.qkv_bias);
    list->matrix(layer, "attn_k", kv_rows, hidden, config.qkv_bias);
    list->matrix(layer, "attn_v", kv_rows, hidden, config.qkv_bias);
  }
  if (config.qk_norm) {
    list->add(layer_tensor(layer, "attn_q_norm"), 1, config.head_dim);
    list->add(layer_tensor(layer, "attn_k_norm"), 1, config.head_dim);
  }
  list->matrix(layer, "attn_output", hidden, q_rows, config.attention_output_bias);
}

void add_latent_attention(SpecList* list, const ModelConfig& config, const TensorDivision& division,
                          std::int32_t layer) {
  const LatentAttention& latent = *config.latent;
  const std::int64_t hidden = config.hidden_size;
  const std::int64_t heads = config.num_heads;
  const std::int64_t q_rows = heads * config.head_dim;
  if (latent.q_lora_rank > 0) {
    list->matrix(layer, "attn_q_a", latent.q_lora_rank, hidden);
    list->add(layer_tensor(layer, "attn_q_a_norm"), 1, latent.q_lora_rank);
    list->matrix(layer, "attn_q_b", q_rows, latent.q_lora_rank);
  } else {
    list->matrix(layer, "attn_q", q_rows, hidden);
  }
  list->matrix(layer, "attn_kv_a_mqa", latent.cached_dim(), hidden);
  list->add(layer_tensor(layer, "attn_kv_a_norm"), 1, latent.kv_lora_rank);
  if (division.split_kv_b) {
    list->matrix(layer, "attn_k_b", heads * latent.kv_lora_rank, latent.nope_dim);
    list->matrix(layer, "attn_v_b", heads * latent.value_dim, latent.kv_lora_rank);
  } else {
    list->matrix(layer, "attn_kv_b", heads * (latent.nope_dim + latent.value_dim),
                 latent.kv_lora_rank);
  }
  list->matrix(layer, "attn_output", hidden, heads * latent.value_dim,
               config.attention_output_bias);
}

void add_mlp(SpecList* list, const ModelConfig& config, std::int32_t layer) {
  const std::int64_t hidden = config.hidden_size;
  const std::int64_t inner = config.intermediate_size;
  if (config.gated_mlp) list->matrix(layer, "ffn_gate", inner, hidden, config.mlp_bias);
  list->matrix(layer, "ffn_up", inner, hidden, config.mlp_bias);
  list->matrix(layer, "ffn_down", hidden, inner, config.mlp_bias);
}

void add_experts(SpecList* list, const ModelConfig& config, std::int32_t layer) {
  const ExpertConfig& experts = *config.experts;
  const std::int64_t hidden = config.hidden_size;
  const std::int64_t count = experts.num_experts;
  const std::int64_t inner = experts.intermediate_size;
  list->matrix(layer, "ffn_gate_inp", count, hidden);
  list->add(layer_tensor(layer, "exp_probs_b", ".bias"), 1, count);
  list->matrix(layer, "ffn_gate_exps", count * inner, hidden);
  list->matrix(layer, "ffn_up_exps", count * inner, hidden);
  list->matrix(layer, "ffn_down_exps", count * hidden, inner);
  if (experts.num_shared_experts == 0) return;
  const std::int64_t shared = experts.num_shared_experts * inner;
  list->matrix(layer, "ffn_gate_shexp", shared, hidden);
  list->matrix(layer, "ffn_up_shexp", shared, hidden);
  list->matrix(layer, "ffn_down_shexp", hidden, shared);
}

void add_layer(SpecList* list, const ModelConfig& config, const TensorDivision& division,
               std::int32_t layer) {
  const LayerNormNames norms = layer_norm_names(config.norm_placement);
  list->norm(layer, norms.attention);
  if (config.latent) {
    add_latent_attention(list, config, division, layer);
  } else {
    add_head_attention(list, config, division, layer);
  }
  list->norm(layer, norms.attention_post);
  list->norm(layer, norms.mlp);
  if (config.layers[static_cast<std::size_t>(layer)].experts) {
    add_experts(list, config, layer);
  } else {
    add_mlp(list, config, layer);
  }
  list->norm(layer, norms.mlp_post);
}

}  // namespace

std::string layer_tensor(std::int32_t layer, const char* part, const char* suffix) {
  return "blk." + std::to_string(layer) + "." + part + suffix;
}

LayerNormNames layer_norm_names(NormPlacement placement) {
  switch (placement) {
    case NormPlacement::kAround:
      return {"attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm"};
    case NormPlacement::kAfter:
      return {nullptr, "attn_output_norm", nullptr, "layer_output_norm"};
    case NormPlacement::kBefore:
      break;
  }
  return {"attn_norm", nullptr, "ffn_norm", nullptr};
}

TensorDivision find_division(const TensorSource& tensors) {
  return {.joined_qkv = tensors.find(layer_tensor(0, "attn_qkv")) != nullptr,
          .split_kv_b = tensors.find(layer_tensor(0, "attn_k_b")) != nullptr};
}

std::vector<TensorSpec> expected_tensors(const ModelConfig& config,
                                         const TensorDivision& division) {
  const std::int64_t hidden = config.hidden_size;
  SpecList list(config);
  list.add("token_embd.weight", config.vocab_size, hidden);
  if (config.positions == PositionKind::kLearned) {
    list.add("position_embd.weight", config.max_context_tokens, hidden);
    list.specs.back().more_rows = true;  // a sentence encoder may be meant for shorter texts
  }
  if (config.num_token_types > 0) list.add("token_types.weight", config.num_token_types, hidden);
  if (config.embedding_norm) list.norm("token_embd_norm");
  for (std::int32_t i = 0; i < config.num_layers; ++i) add_layer(&list, config, division, i);
  if (config.encoder) return std::move(list.specs);
  list.norm("output_norm");
  if (!config.tied_embeddings) list.add("output.weight", config.vocab_size, hidden);
  return std::move(list.specs);
}

}  // namespace batchmill
