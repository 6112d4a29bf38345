#include "engine/folder_names.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace batchmill {
namespace {

// Where a family's published names differ from Llama's.
struct NameStyle {
  const char* embedding;  // after the prefix
  const char* layer;  // before a layer's number
  std::vector<const char*> prefixes;  // tried in turn
};

NameStyle style_of(const std::string& architecture) {
  if (architecture == "gpt2") return {"wte.weight", "h.", {"transformer.", ""}};
  if (architecture == "bert") {
    return {"embeddings.word_embeddings.weight", "encoder.layer.", {"", "bert."}};
  }
  return {"embed_tokens.weight",
          "layers.",
          {"model.", "", "model.language_model.", "language_model.model."}};
}

// Adds the tensors of one model.
class NameList {
 public:
  NameList(const FolderConfig& config, const NameStyle& style, FolderNames* names)
      : model_(config.model), style_(style), names_(*names) {}

  void outer(const char* name, const std::string& source) {
    names_.tensors.push_back({.name = name, .sources = {names_.prefix + source}});
  }

  void begin_layer(std::int32_t layer) {
    target_ = "blk." + std::to_string(layer) + ".";
    source_ = names_.prefix + style_.layer + std::to_string(layer) + ".";
  }

  // Of the layer that began last, both without their ".weight".
  TensorMapping& weight(const std::string& part, const std::string& source) {
    names_.tensors.push_back(
        {.name = target_ + part + ".weight", .sources = {source_ + source + ".weight"}});
    return names_.tensors.back();
  }

  void bias(const std::string& part, const std::string& source) {
    names_.tensors.push_back(
        {.name = target_ + part + ".bias", .sources = {source_ + source + ".bias"}});
  }

  void linear(const std::string& part, const std::string& source, bool with_bias,
              bool transposed = false) {
    weight(part, source).transposed = transposed;
    if (with_bias) bias(part, source);
  }

  // Gemma's norms hold their weight less one.
  void norm(const std::string& part, const std::string& source) {
    weight(part, source).added = model_.architecture == "gemma3" ? 1.0f : 0.0f;
    if (model_.norm == NormKind::kLayer) bias(part, source);
  }

  void experts(const std::string& part, const std::string& matrix) {
    TensorMapping mapping{.name = target_ + part + ".weight", .sources = {}};
    for (std::int32_t i = 0; i < model_.experts->num_experts; ++i) {
      mapping.sources.push_back(source_ + "mlp.experts." + std::to_string(i) + "." + matrix +
                                ".weight");
    }
    names_.tensors.push_back(std::move(mapping));
  }

  // An array of the layer whose name does not end in ".weight".
  void plain(const std::string& name, const std::string& source) {
    names_.tensors.push_back({.name = target_ + name, .sources = {source_ + source}});
  }

  TensorMapping& last() { return names_.tensors.back(); }

 private:
  const ModelConfig& model_;
  const NameStyle& style_;
  FolderNames& names_;
  std::string target_;
  std::string source_;
};

void add_latent_attention(const ModelConfig& model, NameList* list) {
  if (model.latent->q_lora_rank > 0) {
    list->weight("attn_q_a", "self_attn.q_a_proj");
    list->weight("attn_q_a_norm", "self_attn.q_a_layernorm");
    list->weight("attn_q_b", "self_attn.q_b_proj");
  } else {
    list->weight("attn_q", "self_attn.q_proj");
  }
  list->weight("attn_kv_a_mqa", "self_attn.kv_a_proj_with_mqa");
  list->weight("attn_kv_a_norm", "self_attn.kv_a_layernorm");
  list->weight("attn_kv_b", "self_attn.kv_b_proj");
  list->linear("attn_output", "self_attn.o_proj", model.attention_output_bias);
}

void add_head_attention(const ModelConfig& model, NameList* list) {
  list->linear("attn_q", "self_attn.q_proj", model.qkv_bias);
  list->linear("attn_k", "self_attn.k_proj", model.qkv_bias);
  list->linear("attn_v", "self_attn.v_proj", model.qkv_bias);
  if (model.qk_norm) {
    list->norm("attn_q_norm", "self_attn.q_norm");
    list->norm("attn_k_norm", "self_attn.k_norm");
  }
  list->linear("attn_output", "self_attn.o_proj", model.attention_output_bias);
}

void add_gated_mlp(const std::string& suffix, const std::string& source, bool with_bias,
                   NameList* list) {
  list->linear("ffn_gate" + suffix, source + ".gate_proj", with_bias);
  list->linear("ffn_up" + suffix, source + ".up_proj", with_bias);
  list->linear("ffn_down" + suffix, source + ".down_proj", with_bias);
}

void add_experts(const ModelConfig& model, NameList* list) {
  list->weight("ffn_gate_inp", "mlp.gate");
  list->plain("exp_probs_b.bias", "mlp.gate.e_score_correction_bias");
  list->experts("ffn_gate_exps", "gate_proj");
  list->experts("ffn_up_exps", "up_proj");
  list->experts("ffn_down_exps", "down_proj");
  if (model.experts->num_shared_experts > 0) {
    add_gated_mlp("_shexp", "mlp.shared_experts", false, list);
  }
}

// Llama and all that are named like it.
void add_llama_layers(const ModelConfig& model, NameList* list) {
  const bool around = model.norm_placement == NormPlacement::kAround;
  for (std::int32_t i = 0; i < model.num_layers; ++i) {
    list->begin_layer(i);
    list->norm("attn_norm", "input_layernorm");
    if (model.latent) {
      add_latent_attention(model, list);
    } else {
      add_head_attention(model, list);
    }
    if (around) list->norm("post_attention_norm", "post_attention_layernorm");
    list->norm("ffn_norm", around ? "pre_feedforward_layernorm" : "post_attention_layernorm");
    if (model.layers[static_cast<std::size_t>(i)].experts) {
      add_experts(model, list);
    } else {
      add_gated_mlp("", "mlp", model.mlp_bias, list);
    }
    if (around) list->norm("post_ffw_norm", "post_feedforward_layernorm");
  }
}

void add_gpt2_layers(const ModelConfig& model, NameList* list) {
  for (std::int32_t i = 0; i < model.num_layers; ++i) {
    list->begin_layer(i);
    list->norm("attn_norm", "ln_1");
    list->linear("attn_qkv", "attn.c_attn", true, true);
    list->linear("attn_output", "attn.c_proj", true, true);
    list->norm("ffn_norm", "ln_2");
    list->linear("ffn_up", "mlp.c_fc", true, true);
    list->linear("ffn_down", "mlp.c_proj", true, true);
  }
}

void add_bert_layers(const ModelConfig& model, NameList* list) {
  for (std::int32_t i = 0; i < model.num_layers; ++i) {
    list->begin_layer(i);
    list->linear("attn_q", "attention.self.query", true);
    list->linear("attn_k", "attention.self.key", true);
    list->linear("attn_v", "attention.self.value", true);
    list->linear("attn_output", "attention.output.dense", true);
    list->norm("attn_output_norm", "attention.output.LayerNorm");
    list->linear("ffn_up", "intermediate.dense", true);
    list->linear("ffn_down", "output.dense", true);
    list->norm("layer_output_norm", "output.LayerNorm");
  }
}

std::string output_matrix(const FolderNames& names) {
  const bool inside = names.prefix == "language_model.model.";
  return inside ? "language_model.lm_head.weight" : "lm_head.weight";
}

// A folder cannot hold more layers and experts than arrays. Before names are made of their numbers.
void check_extent(const ModelConfig& model, const SafetensorsFolder& files) {
  const std::int64_t experts = model.experts ? model.experts->num_experts : 1;
  const std::int64_t parts = std::count_if(model.layers.begin(), model.layers.end(),
                                           [](const LayerConfig& layer) { return layer.experts; }) *
                                 experts +
                             model.num_layers;
  if (parts > static_cast<std::int64_t>(files.tensors().size())) {
    throw std::runtime_error("config.json says " + std::to_string(parts) +
                             " layers and experts, the folder holds " +
                             std::to_string(files.tensors().size()) + " tensors");
  }
}

bool is_number(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

// The part of `array` after "PREFIX layers.N.", N in `number`; empty if it is none.
std::string_view after_layer(std::string_view array, std::string_view layers, std::string* number) {
  if (!array.starts_with(layers)) return {};
  array.remove_prefix(layers.size());
  const std::size_t dot = array.find('.');
  if (dot == std::string_view::npos || dot > 9 || !is_number(array.substr(0, dot))) return {};
  *number = array.substr(0, dot);
  return array.substr(dot + 1);
}

}  // namespace

FolderNames map_folder_names(const FolderConfig& config, const SafetensorsFolder& files) {
  const ModelConfig& model = config.model;
  const NameStyle style = style_of(model.architecture);
  FolderNames names;
  bool found = false;
  for (const char* prefix : style.prefixes) {
    found = files.find(std::string(prefix) + style.embedding) != nullptr;
    names.prefix = prefix;
    if (found) break;
  }
  if (!found) {
    throw std::runtime_error(std::string("no tensor is named '") + style.prefixes.front() +
                             style.embedding + "'");
  }
  check_extent(model, files);
  NameList list(config, style, &names);
  list.outer("token_embd.weight", style.embedding);
  if (model.architecture == "gpt2") {
    list.outer("position_embd.weight", "wpe.weight");
    add_gpt2_layers(model, &list);
    list.outer("output_norm.weight", "ln_f.weight");
    list.outer("output_norm.bias", "ln_f.bias");
  } else if (model.architecture == "bert") {
    list.outer("position_embd.weight", "embeddings.position_embeddings.weight");
    list.outer("token_types.weight", "embeddings.token_type_embeddings.weight");
    list.outer("token_embd_norm.weight", "embeddings.LayerNorm.weight");
    list.outer("token_embd_norm.bias", "embeddings.LayerNorm.bias");
    add_bert_layers(model, &list);
  } else {
    add_llama_layers(model, &list);
    list.outer("output_norm.weight", "norm.weight");
    list.last().added = model.architecture == "gemma3" ? 1.0f : 0.0f;
  }
  if (!model.tied_embeddings) {
    names.tensors.push_back({.name = "output.weight", .sources = {output_matrix(names)}});
  }
  return names;
}

bool is_unused_array(const FolderConfig& config, const FolderNames& names, std::string_view array) {
  const ModelConfig& model = config.model;
  if (model.tied_embeddings && array == output_matrix(names)) return true;
  const NameStyle style = style_of(model.architecture);
  std::string number;
  const std::string_view part = after_layer(array, names.prefix + style.layer, &number);
  if (!part.empty()) {
    const int layer = std::stoi(number);
    if (layer >= model.num_layers && layer < model.num_layers + config.num_extra_layers)
      return true;
    return part.ends_with(".rotary_emb.inv_freq") || part == "attn.bias" ||
           part == "attn.masked_bias";
  }
  for (const char* inner : {"embeddings.position_ids", "rotary_emb.inv_freq"}) {
    if (array == names.prefix + inner) return true;
  }
  if (model.architecture == "bert") {
    return array.starts_with(names.prefix + "pooler.") || array.starts_with("cls.");
  }
  for (const char* outer : {"vision_tower.", "multi_modal_projector.", "model.vision_tower.",
                            "model.multi_modal_projector."}) {
    if (names.prefix.find("language_model.") != std::string::npos && array.starts_with(outer)) {
      return true;
    }
  }
  return false;
}

}  // namespace batchmill
