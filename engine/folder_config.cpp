#include "engine/folder_config.h"

#include <array>
#include <cmath>
#include <string_view>

#include "engine/dequantize.h"
#include "engine/folder_rope.h"

namespace batchmill {
namespace {

constexpr std::int64_t kMaxLayers = 1024;
constexpr std::int64_t kMaxWidth = 1 << 20;  // hidden and intermediate size
constexpr std::int64_t kMaxVocabulary = 1 << 24;
constexpr std::int64_t kMaxHeads = 4096;
constexpr std::int64_t kMaxHeadDim = 1024;
constexpr std::int64_t kMaxContext = 1 << 28;
constexpr std::int64_t kMaxExperts = 4096;

Activation read_activation(const ConfigObject& config, const char* key, const char* otherwise) {
  const std::string name = config.string(key, otherwise);
  if (name == "silu" || name == "swish") return Activation::kSilu;
  if (name == "gelu" || name == "gelu_python") return Activation::kGeluErf;
  if (name == "gelu_new" || name == "gelu_pytorch_tanh" || name == "gelu_fast") {
    return Activation::kGeluTanh;
  }
  config.refuse(key);
}

void set_true_window(ModelConfig* model, std::size_t layer, std::int32_t window) {
  // A window that holds the whole context is none.
  if (window < model->max_context_tokens) model->layers[layer].window_tokens = window;
}

// What all decoders but GPT-2 spell alike. `head_dim` is the default of configs that state none; 0:
// hidden size ÷ heads.
void read_shapes(const ConfigObject& config, std::int32_t head_dim, ModelConfig* model) {
  model->vocab_size = config.integer("vocab_size", 1, kMaxVocabulary);
  model->hidden_size = config.integer("hidden_size", 1, kMaxWidth);
  model->intermediate_size = config.integer("intermediate_size", 1, kMaxWidth);
  model->num_layers = config.integer("num_hidden_layers", 1, kMaxLayers);
  model->num_heads = config.integer("num_attention_heads", 1, kMaxHeads);
  model->num_kv_heads = config.integer("num_key_value_heads", 1, kMaxHeads, model->num_heads);
  if (model->num_heads % model->num_kv_heads != 0) {
    config.fail(std::to_string(model->num_heads) + " heads cannot share " +
                std::to_string(model->num_kv_heads) + " key/value heads evenly");
  }
  if (head_dim == 0) head_dim = model->hidden_size / model->num_heads;
  model->head_dim = config.integer("head_dim", 1, kMaxHeadDim, head_dim);
  if (model->head_dim < 1 || model->head_dim > kMaxHeadDim || model->head_dim % 2 != 0) {
    config.fail("heads of " + std::to_string(model->head_dim) +
                " dimensions cannot be rotated in pairs");
  }
  model->max_context_tokens = config.integer("max_position_embeddings", 1, kMaxContext);
  model->layers.resize(static_cast<std::size_t>(model->num_layers));
  model->attention_scale = 1.0f / std::sqrt(static_cast<float>(model->head_dim));
  model->norm_eps = config.positive("rms_norm_eps", 1e-6f);
}

// Contexts that the scaling reaches count, where configs do not include it already.
void stretch_context(const RopeConfig& rope, ModelConfig* model) {
  if (rope.scaling != RopeScaling::kYarn && rope.scaling != RopeScaling::kDynamic) return;
  const double reached = std::floor(double{rope.factor} * rope.original_context_tokens);
  if (reached > model->max_context_tokens && reached <= kMaxContext) {
    model->max_context_tokens = static_cast<std::int32_t>(reached);
  }
}

// One rotation for all layers.
void read_positions(const ConfigObject& config, ModelConfig* model) {
  model->ropes = {read_rope(config)};
  stretch_context(model->ropes.front(), model);
}

// Fills `model` from `config`; its shapes are zero.
using FamilyReader = void (*)(const ConfigObject& config, ModelConfig* model);

void read_llama(const ConfigObject& config, ModelConfig* model) {
  read_shapes(config, 0, model);
  read_positions(config, model);
  model->activation = read_activation(config, "hidden_act", "silu");
  model->tied_embeddings = config.boolean("tie_word_embeddings", false);
  model->qkv_bias = model->attention_output_bias = config.boolean("attention_bias", false);
  model->mlp_bias = config.boolean("mlp_bias", false);
}

void read_mistral(const ConfigObject& config, ModelConfig* model) {
  read_llama(config, model);
  // Configs without the key mean 4,096; null means none.
  if (config.names("sliding_window") && !config.has("sliding_window")) return;
  const std::int32_t window = config.integer("sliding_window", 1, kMaxContext, 4096);
  for (std::size_t i = 0; i < model->layers.size(); ++i) set_true_window(model, i, window);
}

bool is_sliding(const ConfigObject& config, const std::string& type) {
  if (type == "sliding_attention") return true;
  if (type == "full_attention") return false;
  config.fail("the layer type '" + type + "' is not supported");
}

// `layer_types` if the config has it; empty if not.
std::vector<bool> read_layer_types(const ConfigObject& config, const ModelConfig& model) {
  std::vector<bool> sliding;
  const auto types = config.strings("layer_types");
  if (!types) return sliding;
  if (types->size() != model.layers.size()) {
    config.fail("'layer_types' has " + std::to_string(types->size()) + " entries for " +
                std::to_string(model.layers.size()) + " layers");
  }
  for (const std::string& type : *types) sliding.push_back(is_sliding(config, type));
  return sliding;
}

void read_qwen_window(const ConfigObject& config, ModelConfig* model) {
  const std::vector<bool> sliding = read_layer_types(config, *model);
  if (!config.boolean("use_sliding_window", false)) return;
  if (config.names("sliding_window") && !config.has("sliding_window")) return;
  const std::int32_t window = config.integer("sliding_window", 1, kMaxContext, 4096);
  const auto first =
      static_cast<std::size_t>(config.integer("max_window_layers", 0, kMaxLayers, 28));
  for (std::size_t i = 0; i < model->layers.size(); ++i) {
    if (sliding.empty() ? i >= first : sliding[i]) set_true_window(model, i, window);
  }
}

void read_qwen2(const ConfigObject& config, ModelConfig* model) {
  read_shapes(config, 0, model);
  read_positions(config, model);
  model->activation = read_activation(config, "hidden_act", "silu");
  model->tied_embeddings = config.boolean("tie_word_embeddings", false);
  model->qkv_bias = true;
  read_qwen_window(config, model);
}

void read_qwen3(const ConfigObject& config, ModelConfig* model) {
  read_shapes(config, 128, model);
  read_positions(config, model);
  model->activation = read_activation(config, "hidden_act", "silu");
  model->tied_embeddings = config.boolean("tie_word_embeddings", false);
  model->qkv_bias = model->attention_output_bias = config.boolean("attention_bias", false);
  model->qk_norm = true;
  read_qwen_window(config, model);
}

void read_gemma_positions(const ConfigObject& config, ModelConfig* model) {
  constexpr float kTheta = 1e6f;
  constexpr float kLocalTheta = 1e4f;
  const auto parameters = config.object("rope_parameters");
  if (parameters && (parameters->has("full_attention") || parameters->has("sliding_attention"))) {
    model->ropes = {read_rope(config, parameters->object("full_attention"), kTheta),
                    read_rope(config, parameters->object("sliding_attention"), kLocalTheta)};
    return;
  }
  // The older spelling scales full layers only.
  model->ropes = {
      read_rope(config, rope_parameters(config), config.positive("rope_theta", kTheta)),
      read_rope(config, std::nullopt, config.positive("rope_local_base_freq", kLocalTheta))};
}

void read_gemma3(const ConfigObject& config, ModelConfig* model) {
  read_shapes(config, 256, model);
  read_gemma_positions(config, model);
  model->activation = read_activation(config, "hidden_activation", "gelu_pytorch_tanh");
  model->tied_embeddings = config.boolean("tie_word_embeddings", true);
  model->qkv_bias = model->attention_output_bias = config.boolean("attention_bias", false);
  model->qk_norm = true;
  model->norm_placement = NormPlacement::kAround;
  model->attention_scale = 1.0f / std::sqrt(config.positive("query_pre_attn_scalar", 256.0f));
  model->embedding_scale = std::sqrt(static_cast<float>(model->hidden_size));
  for (const char* key : {"attn_logit_softcapping", "final_logit_softcapping"}) {
    if (config.has(key)) config.refuse(key);
  }
  if (config.boolean("use_bidirectional_attention", false)) {
    config.refuse("use_bidirectional_attention");
  }
  const std::int32_t window = config.integer("sliding_window", 1, kMaxContext, 4096);
  const char* pattern_key =
      config.has("sliding_window_pattern") ? "sliding_window_pattern" : "_sliding_window_pattern";
  const auto pattern = static_cast<std::size_t>(config.integer(pattern_key, 1, kMaxLayers, 6));
  const std::vector<bool> sliding = read_layer_types(config, *model);
  for (std::size_t i = 0; i < model->layers.size(); ++i) {
    if (sliding.empty() ? (i + 1) % pattern == 0 : !sliding[i]) continue;
    set_true_window(model, i, window);
    model->layers[i].rope = 1;
  }
}

void read_latent_attention(const ConfigObject& config, ModelConfig* model) {
  LatentAttention latent;
  latent.q_lora_rank = config.integer("q_lora_rank", 1, kMaxWidth, 0);
  latent.kv_lora_rank = config.integer("kv_lora_rank", 1, kMaxWidth);
  latent.nope_dim = config.integer("qk_nope_head_dim", 1, kMaxHeadDim);
  latent.rope_dim = config.integer("qk_rope_head_dim", 1, kMaxHeadDim);
  latent.value_dim = config.integer("v_head_dim", 1, kMaxHeadDim);
  if (latent.rope_dim % 2 != 0) config.refuse("qk_rope_head_dim");
  model->head_dim = latent.nope_dim + latent.rope_dim;
  model->latent = latent;

  double scale = 1.0 / std::sqrt(static_cast<double>(model->head_dim));
  const RopeConfig& rope = model->ropes.front();
  const auto parameters = rope_parameters(config);
  if (parameters && rope.scaling != RopeScaling::kNone) {
    const double all = parameters->number("mscale_all_dim", 0.0, 100.0).value_or(0.0);
    const double magnitude = stretch_magnitude(rope.factor, all);
    scale *= magnitude * magnitude;
  }
  model->attention_scale = static_cast<float>(scale);
}

void read_experts(const ConfigObject& config, ModelConfig* model) {
  ExpertConfig experts;
  experts.num_experts = config.integer("n_routed_experts", 1, kMaxExperts);
  experts.num_experts_per_token = config.integer("num_experts_per_tok", 1, experts.num_experts);
  experts.num_shared_experts = config.integer("n_shared_experts", 0, kMaxExperts, 0);
  experts.intermediate_size = config.integer("moe_intermediate_size", 1, kMaxWidth);
  experts.num_groups = config.integer("n_group", 1, experts.num_experts, 1);
  experts.num_groups_per_token = config.integer("topk_group", 1, experts.num_groups, 1);
  experts.normalize_weights = config.boolean("norm_topk_prob", true);
  experts.weights_scale = config.positive("routed_scaling_factor", 1.0f);
  if (experts.num_experts % experts.num_groups != 0) {
    config.fail(std::to_string(experts.num_experts) + " experts do not divide into " +
                std::to_string(experts.num_groups) + " groups");
  }
  if (experts.num_experts_per_token >
      experts.num_groups_per_token * (experts.num_experts / experts.num_groups)) {
    config.fail("the groups of a token hold fewer experts than 'num_experts_per_tok'");
  }
  if (config.string("scoring_func", "sigmoid") != "sigmoid") config.refuse("scoring_func");
  if (config.string("topk_method", "noaux_tc") != "noaux_tc") config.refuse("topk_method");
  if (config.integer("moe_layer_freq", 1, kMaxLayers, 1) != 1) config.refuse("moe_layer_freq");
  model->experts = experts;
  const auto dense =
      static_cast<std::size_t>(config.integer("first_k_dense_replace", 0, kMaxLayers, 0));
  for (std::size_t i = dense; i < model->layers.size(); ++i) model->layers[i].experts = true;
}

void read_deepseek_v3(const ConfigObject& config, ModelConfig* model) {
  read_shapes(config, 64, model);
  read_positions(config, model);
  model->activation = read_activation(config, "hidden_act", "silu");
  model->tied_embeddings = config.boolean("tie_word_embeddings", false);
  if (config.boolean("attention_bias", false)) config.refuse("attention_bias");
  read_latent_attention(config, model);
  read_experts(config, model);
  model->interleaved_qk_rows = config.boolean("rope_interleave", true);
}

void read_gpt2(const ConfigObject& config, ModelConfig* model) {
  model->vocab_size = config.integer("vocab_size", 1, kMaxVocabulary);
  model->hidden_size = config.integer("n_embd", 1, kMaxWidth);
  model->num_layers = config.integer("n_layer", 1, kMaxLayers);
  model->num_heads = model->num_kv_heads = config.integer("n_head", 1, kMaxHeads);
  model->max_context_tokens = config.integer("n_positions", 1, kMaxContext);
  model->intermediate_size = config.integer("n_inner", 1, kMaxWidth, 4 * model->hidden_size);
  if (model->hidden_size % model->num_heads != 0) config.refuse("n_head");
  model->head_dim = model->hidden_size / model->num_heads;
  model->layers.resize(static_cast<std::size_t>(model->num_layers));
  const bool scaled = config.boolean("scale_attn_weights", true);
  model->attention_scale = scaled ? 1.0f / std::sqrt(static_cast<float>(model->head_dim)) : 1.0f;
  model->norm = NormKind::kLayer;
  model->norm_eps = config.positive("layer_norm_epsilon", 1e-5f);
  model->activation = read_activation(config, "activation_function", "gelu_new");
  model->gated_mlp = false;
  model->qkv_bias = model->attention_output_bias = model->mlp_bias = true;
  model->tied_embeddings = config.boolean("tie_word_embeddings", true);
  model->positions = PositionKind::kLearned;
  for (const char* key : {"scale_attn_by_inverse_layer_idx", "add_cross_attention"}) {
    if (config.boolean(key, false)) config.refuse(key);
  }
}

void read_bert(const ConfigObject& config, ModelConfig* model) {
  model->vocab_size = config.integer("vocab_size", 1, kMaxVocabulary);
  model->hidden_size = config.integer("hidden_size", 1, kMaxWidth);
  model->intermediate_size = config.integer("intermediate_size", 1, kMaxWidth);
  model->num_layers = config.integer("num_hidden_layers", 1, kMaxLayers);
  model->num_heads = model->num_kv_heads = config.integer("num_attention_heads", 1, kMaxHeads);
  model->max_context_tokens = config.integer("max_position_embeddings", 1, kMaxContext);
  if (model->hidden_size % model->num_heads != 0) config.refuse("num_attention_heads");
  model->head_dim = model->hidden_size / model->num_heads;
  model->layers.resize(static_cast<std::size_t>(model->num_layers));
  model->attention_scale = 1.0f / std::sqrt(static_cast<float>(model->head_dim));
  model->norm = NormKind::kLayer;
  model->norm_placement = NormPlacement::kAfter;
  model->norm_eps = config.positive("layer_norm_eps", 1e-12f);
  model->activation = read_activation(config, "hidden_act", "gelu");
  model->gated_mlp = false;
  model->qkv_bias = model->attention_output_bias = model->mlp_bias = true;
  model->tied_embeddings = true;
  model->positions = PositionKind::kLearned;
  model->encoder = true;
  model->embedding_norm = true;
  model->num_token_types = config.integer("type_vocab_size", 1, kMaxVocabulary, 2);
  if (config.string("position_embedding_type", "absolute") != "absolute") {
    config.refuse("position_embedding_type");
  }
  for (const char* key : {"is_decoder", "add_cross_attention"}) {
    if (config.boolean(key, false)) config.refuse(key);
  }
}

struct Family {
  std::string_view name;  // in `architectures`
  const char* architecture;  // GGUF's
  FamilyReader read;
};

constexpr std::array<Family, 9> kFamilies = {{
    {"LlamaForCausalLM", "llama", read_llama},
    {"MistralForCausalLM", "llama", read_mistral},
    {"Qwen2ForCausalLM", "qwen2", read_qwen2},
    {"Qwen3ForCausalLM", "qwen3", read_qwen3},
    {"GPT2LMHeadModel", "gpt2", read_gpt2},
    {"Gemma3ForCausalLM", "gemma3", read_gemma3},
    {"Gemma3ForConditionalGeneration", "gemma3", read_gemma3},
    {"DeepseekV3ForCausalLM", "deepseek2", read_deepseek_v3},
    {"BertModel", "bert", read_bert},
}};

const Family& find_family(const ConfigObject& config) {
  const auto architectures = config.strings("architectures");
  if (!architectures || architectures->empty()) config.fail("'architectures' is missing");
  for (const Family& family : kFamilies) {
    if (family.name == architectures->front()) return family;
  }
  config.fail("architecture '" + architectures->front() + "' is not supported");
}

}  // namespace

FolderConfig read_folder_config(const ConfigObject& config) {
  const Family& family = find_family(config);
  FolderConfig folder;
  folder.model.architecture = family.architecture;
  // A model that sees images too keeps its language model's config inside.
  const auto text_config = config.object("text_config");
  family.read(text_config ? *text_config : config, &folder.model);
  // Software of the makers multiplies in the weights' type: √640 is then 25.25.
  const std::string dtype = config.string("dtype", config.string("torch_dtype", "float32"));
  if (dtype == "bfloat16") {
    folder.model.embedding_scale =
        float_from_bfloat16(bfloat16_from_float(folder.model.embedding_scale));
  }
  if (folder.model.latent) {
    folder.num_extra_layers = config.integer("num_nextn_predict_layers", 0, kMaxLayers, 0);
  }
  if (const auto quantization = config.object("quantization_config")) {
    folder.packed = read_packed_format(*quantization);
  }
  return folder;
}

}  // namespace batchmill
