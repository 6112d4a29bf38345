#include "engine/model_size.h"

namespace batchmill {
namespace {

void add_attention(const ModelConfig& config, ModelSize* size) {
  const std::int64_t hidden = config.hidden_size;
  const std::int64_t heads = config.num_heads;
  if (config.latent) {
    const LatentAttention& latent = *config.latent;
    const std::int64_t query = heads * (latent.nope_dim + latent.rope_dim);
    if (latent.q_lora_rank > 0) {
      size->matrices += (hidden + query) * latent.q_lora_rank;
      size->vectors += latent.q_lora_rank;
    } else {
      size->matrices += hidden * query;
    }
    size->matrices += hidden * latent.cached_dim();
    size->vectors += latent.kv_lora_rank;
    size->matrices += latent.kv_lora_rank * heads * (latent.nope_dim + latent.value_dim);
    size->matrices += heads * latent.value_dim * hidden;
    return;
  }
  const std::int64_t q_rows = heads * config.head_dim;
  const std::int64_t kv_rows = std::int64_t{config.num_kv_heads} * config.head_dim;
  size->matrices += hidden * (2 * q_rows + 2 * kv_rows);
  if (config.qkv_bias) size->vectors += q_rows + 2 * kv_rows;
  if (config.attention_output_bias) size->vectors += hidden;
  if (config.qk_norm) size->vectors += 2LL * config.head_dim;
}

void add_mlp(const ModelConfig& config, const LayerConfig& layer, ModelSize* size) {
  const std::int64_t hidden = config.hidden_size;
  const std::int64_t projections = config.gated_mlp ? 3 : 2;
  if (layer.experts && config.experts) {
    const ExpertConfig& experts = *config.experts;
    const std::int64_t expert = projections * hidden * experts.intermediate_size;
    size->matrices += (std::int64_t{experts.num_experts} + experts.num_shared_experts) * expert;
    size->matrices += hidden * experts.num_experts;  // the router
    size->vectors += experts.num_experts;  // its bias
    size->idle += (std::int64_t{experts.num_experts} - experts.num_experts_per_token) * expert;
    return;
  }
  size->matrices += projections * hidden * config.intermediate_size;
  if (config.mlp_bias) {
    size->vectors += (projections - 1) * config.intermediate_size + hidden;
  }
}

}  // namespace

ModelSize measure_model(const ModelConfig& config) {
  ModelSize size;
  const std::int64_t hidden = config.hidden_size;
  const std::int64_t norm = config.norm == NormKind::kLayer ? 2 * hidden : hidden;
  const std::int64_t layer_norms = config.norm_placement == NormPlacement::kAround ? 4 : 2;
  size.tables = hidden * (std::int64_t{config.vocab_size} + config.num_token_types);
  if (config.positions == PositionKind::kLearned) size.tables += hidden * config.max_context_tokens;
  if (config.embedding_norm) size.vectors += norm;
  for (const LayerConfig& layer : config.layers) {
    add_attention(config, &size);
    add_mlp(config, layer, &size);
    size.vectors += layer_norms * norm;
  }
  if (config.norm_placement != NormPlacement::kAfter) size.vectors += norm;
  if (!config.encoder) size.output = hidden * config.vocab_size;
  size.tied = config.tied_embeddings;
  return size;
}

std::string kv_bytes_formula(const ModelConfig& config, std::int32_t bytes_per_element) {
  if (config.encoder) return "0: nothing is kept";
  const std::string layers = std::to_string(config.num_layers) + " layers × ";
  const std::string bytes = " × " + std::to_string(bytes_per_element) + " bytes";
  if (config.latent) {
    return layers + "(" + std::to_string(config.latent->kv_lora_rank) + " + " +
           std::to_string(config.latent->rope_dim) + ")" + bytes;
  }
  const std::string head_dim = std::to_string(config.head_dim);
  return "2 × " + layers + std::to_string(config.num_kv_heads) + " heads × " +
         (bytes_per_element == 1 ? "(" + head_dim + " + 4) bytes" : head_dim + bytes);
}

}  // namespace batchmill
