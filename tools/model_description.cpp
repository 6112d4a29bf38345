#include "tools/model_description.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "engine/model_size.h"

namespace batchmill {
namespace {

const char* norm_name(NormKind norm) { return norm == NormKind::kRms ? "rms" : "layer"; }

const char* placement_name(NormPlacement placement) {
  switch (placement) {
    case NormPlacement::kBefore:
      return "before";
    case NormPlacement::kAround:
      return "around";
    case NormPlacement::kAfter:
      return "after";
  }
  return "";
}

const char* activation_name(Activation activation) {
  switch (activation) {
    case Activation::kSilu:
      return "silu";
    case Activation::kGeluTanh:
      return "gelu_tanh";
    case Activation::kGeluErf:
      return "gelu";
  }
  return "";
}

const char* positions_name(PositionKind positions) {
  switch (positions) {
    case PositionKind::kRotary:
      return "rotary";
    case PositionKind::kLearned:
      return "learned";
    case PositionKind::kSinusoidal:
      return "sinusoidal";
  }
  return "";
}

Json shape_json(const ModelConfig& config) {
  Json shape = {{"layers", config.num_layers},
                {"hidden_size", config.hidden_size},
                {"intermediate_size", config.intermediate_size},
                {"heads", config.num_heads},
                {"kv_heads", config.num_kv_heads},
                {"head_dim", config.head_dim},
                {"vocab_size", config.vocab_size},
                {"max_context_tokens", config.max_context_tokens},
                {"tied_embeddings", config.tied_embeddings},
                {"norm", norm_name(config.norm)},
                {"norm_placement", placement_name(config.norm_placement)},
                {"activation", activation_name(config.activation)},
                {"gated_mlp", config.gated_mlp},
                {"qkv_bias", config.qkv_bias},
                {"qk_norm", config.qk_norm},
                {"positions", positions_name(config.positions)},
                {"encoder", config.encoder}};
  if (config.latent) {
    shape["latent_attention"] = {{"q_lora_rank", config.latent->q_lora_rank},
                                 {"kv_lora_rank", config.latent->kv_lora_rank},
                                 {"nope_dim", config.latent->nope_dim},
                                 {"rope_dim", config.latent->rope_dim},
                                 {"value_dim", config.latent->value_dim}};
  }
  if (config.experts) {
    shape["experts"] = {{"count", config.experts->num_experts},
                        {"per_token", config.experts->num_experts_per_token},
                        {"shared", config.experts->num_shared_experts},
                        {"intermediate_size", config.experts->intermediate_size},
                        {"groups", config.experts->num_groups},
                        {"groups_per_token", config.experts->num_groups_per_token}};
  }
  return shape;
}

// Layers that are alike, in the order of their first.
Json layer_kinds(const ModelConfig& config) {
  Json kinds = Json::array();
  for (std::size_t i = 0; i < config.layers.size(); ++i) {
    const LayerConfig& layer = config.layers[i];
    Json kind = {{"attention", config.latent             ? "latent"
                               : layer.window_tokens > 0 ? "sliding"
                                                         : "full"},
                 {"mlp", layer.experts ? "experts" : "dense"}};
    if (layer.window_tokens > 0) kind["window_tokens"] = layer.window_tokens;
    if (!config.ropes.empty()) kind["rope"] = layer.rope;
    const auto same = std::find_if(kinds.begin(), kinds.end(), [&](const Json& other) {
      return std::all_of(kind.items().begin(), kind.items().end(),
                         [&](const auto& item) {
                           return other.contains(item.key()) &&
                                  other.at(item.key()) == item.value();
                         }) &&
             other.contains("window_tokens") == kind.contains("window_tokens");
    });
    Json& entry = same != kinds.end() ? *same : (kinds.push_back(kind), kinds.back());
    entry["layers"].push_back(i);
  }
  return kinds;
}

Json rope_json(const RopeConfig& rope) {
  Json json = {{"theta", rope.theta}, {"scaling", rope_scaling_name(rope.scaling)}};
  if (rope.scaling == RopeScaling::kNone) return json;
  json["factor"] = rope.factor;
  if (rope.scaling == RopeScaling::kLinear) return json;
  json["original_context_tokens"] = rope.original_context_tokens;
  if (rope.scaling == RopeScaling::kLlama3) {
    json["low_freq_factor"] = rope.low_freq_factor;
    json["high_freq_factor"] = rope.high_freq_factor;
  }
  if (rope.scaling == RopeScaling::kYarn) {
    json["beta_fast"] = rope.beta_fast;
    json["beta_slow"] = rope.beta_slow;
    json["attention_factor"] = rope.attention_factor;
  }
  return json;
}

// GGUF files hold Llama 3's scaling as factors per frequency.
Json frequency_factors(const TensorSource& tensors) {
  const TensorInfo* info = tensors.find("rope_freqs.weight");
  if (info == nullptr || !info->readable) return nullptr;
  std::vector<float> factors(static_cast<std::size_t>(info->cols));
  tensors.read_row(*info, 0, factors.data());
  const auto [least, most] = std::minmax_element(factors.begin(), factors.end());
  return {{"tensor", info->name}, {"smallest", *least}, {"largest", *most}};
}

Json vocabulary_json(const Tokenizer& tokenizer) {
  const Vocabulary& words = tokenizer.vocabulary();
  const auto piece = [&](TokenId id) {
    return id == kNoToken ? Json() : Json(std::string(tokenizer.piece(id)));
  };
  return {{"size", tokenizer.vocab_size()},
          {"model", words.model},
          {"pre_tokenizer", words.pre_tokenizer},
          {"bos_token", piece(words.bos_token)},
          {"eos_token", piece(words.eos_token)}};
}

// How many sequences of a length fit beside the weights: some lengths up to the model's context.
Json fits_json(const ModelConfig& config, const CpuPlan& plan, std::int32_t block_size_tokens) {
  Json rows = Json::array();
  const std::int64_t block_bytes = plan.kv_bytes_per_token * block_size_tokens;
  if (block_bytes == 0) return rows;
  const std::int64_t blocks = plan.cache_room_bytes / block_bytes;
  const std::int64_t most = config.max_context_tokens;
  const auto add = [&](std::int64_t context) {
    const std::int64_t each = (context + block_size_tokens - 1) / block_size_tokens;
    rows.push_back({{"context_tokens", context},
                    {"sequences", blocks / each},
                    {"kv_bytes_per_sequence", each * block_bytes}});
  };
  for (std::int64_t context = 1024; context < most; context *= 4) add(context);
  add(most);
  return rows;
}

Json device_json(const ModelConfig& config, const CpuPlan& plan, std::int32_t block_size_tokens) {
  const std::int64_t tokens =
      plan.kv_bytes_per_token == 0 ? 0 : plan.kv_cache_bytes / plan.kv_bytes_per_token;
  return {
      {"name", "cpu"},
      {"dtype", dtype_name(plan.dtype)},
      {"kv_dtype", dtype_name(plan.kv_dtype)},
      {"threads", plan.threads},
      {"weight_bytes", plan.weight_bytes},
      {"available_bytes", plan.available_bytes},
      {"cache_room_bytes", plan.cache_room_bytes},
      {"kv_bytes_per_token", plan.kv_bytes_per_token},
      {"kv_bytes_formula", kv_bytes_formula(config, dtype_bytes(plan.kv_dtype))},
      {"kv_cache_bytes", plan.kv_cache_bytes},
      {"kv_cache_tokens", tokens},
      {"context_fits", fits_json(config, plan, block_size_tokens)},
      {"fits", config.encoder ? plan.available_bytes > plan.weight_bytes : plan.num_blocks > 0}};
}

}  // namespace

Json tensor_counts(const std::vector<TypeAndBytes>& tensors) {
  std::map<std::string, std::uint64_t> types;
  std::uint64_t total = 0;
  for (const auto& [type, bytes] : tensors) {
    ++types[type];
    total += bytes;
  }
  return {{"bytes", total}, {"types", types}};
}

void describe_shapes(const ModelConfig& config, const CpuPlan& plan, std::int32_t block_size_tokens,
                     Json* json) {
  const ModelSize size = measure_model(config);
  Json ropes = Json::array();
  for (const RopeConfig& rope : config.ropes) ropes.push_back(rope_json(rope));
  (*json)["parameters"] = size.parameters();
  (*json)["active_parameters"] = size.active_parameters();
  (*json)["shape"] = shape_json(config);
  (*json)["layer_kinds"] = layer_kinds(config);
  (*json)["ropes"] = std::move(ropes);
  (*json)["device"] = device_json(config, plan, block_size_tokens);
}

Json describe_model(const Model& model, const CpuPlan& plan, std::int32_t block_size_tokens) {
  std::vector<TypeAndBytes> tensors;
  for (const TensorInfo& tensor : model.tensors().tensors()) {
    tensors.emplace_back(tensor.type, tensor.bytes);
  }
  Json json = {{"path", model.path()},
               {"architecture", model.config().architecture},
               {"name", model.config().name},
               {"supported", true},
               {"fingerprint", model.fingerprint()}};
  describe_shapes(model.config(), plan, block_size_tokens, &json);
  json["rope_frequency_factors"] = frequency_factors(model.tensors());
  json["tensors"] = tensor_counts(tensors);
  json["vocabulary"] = model.tokenizer() != nullptr ? vocabulary_json(*model.tokenizer()) : Json();
  json["eos_token_ids"] = model.eos_token_ids();
  json["chat_template"] =
      model.chat_template() != nullptr ? Json(model.chat_template()->source()) : Json();
  return json;
}

}  // namespace batchmill
