#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "engine/dequantize.h"
#include "engine/folder_config.h"
#include "engine/folder_tensors.h"
#include "engine/hf_vocabulary.h"
#include "engine/json_file.h"
#include "engine/mapped_file.h"
#include "engine/model_files.h"
#include "engine/xxh64.h"

namespace batchmill {
namespace {

using nlohmann::ordered_json;

// What decides answers besides the weights.
constexpr std::array<const char*, 15> kHashedFiles = {"config.json",
                                                      "quantize_config.json",
                                                      "quant_config.json",
                                                      "generation_config.json",
                                                      "tokenizer.json",
                                                      "tokenizer_config.json",
                                                      "tokenizer.model",
                                                      "special_tokens_map.json",
                                                      "added_tokens.json",
                                                      "vocab.json",
                                                      "merges.txt",
                                                      "vocab.txt",
                                                      "chat_template.jinja",
                                                      "chat_template.json",
                                                      "sentence_bert_config.json"};

bool exists(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

std::string read_text(const std::string& path) {
  const MappedFile file(path);
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

// A file that the folder need not have: null.
ordered_json read_optional(const std::string& path) {
  return exists(path) ? read_json_file(path) : ordered_json();
}

// Quantizing software once kept its settings in a file of its own.
void add_quantization_file(const std::string& folder, ordered_json* config) {
  if (config->is_object() && config->contains("quantization_config")) return;
  for (const auto& [file, method] :
       {std::pair("/quantize_config.json", "gptq"), std::pair("/quant_config.json", "awq")}) {
    if (!config->is_object() || !exists(folder + file)) continue;
    ordered_json quantization = read_json_file(folder + file);
    if (quantization.is_object() && !quantization.contains("quant_method")) {
      quantization["quant_method"] = method;
    }
    (*config)["quantization_config"] = std::move(quantization);
    return;
  }
}

std::string model_name(const std::string& folder, const ConfigObject& config) {
  const std::string stated = config.string("_name_or_path", "");
  if (!stated.empty()) return stated;
  return std::filesystem::absolute(folder).lexically_normal().filename().string();
}

// A number or a list of numbers; empty if missing.
std::vector<TokenId> read_token_ids(const ordered_json& json, const std::string& path,
                                    const char* key, std::int32_t vocab_size) {
  std::vector<TokenId> ids;
  if (!json.is_object() || !json.contains(key) || json.at(key).is_null()) return ids;
  const auto add = [&](const ordered_json& value) {
    const bool fits = value.is_number_unsigned() &&
                      value.get<std::uint64_t>() < static_cast<std::uint64_t>(vocab_size);
    if (!fits) {
      throw std::runtime_error(path + ": '" + key + "' is " + value.dump() +
                               ", the vocabulary has " + std::to_string(vocab_size) + " tokens");
    }
    ids.push_back(value.get<TokenId>());
  };
  const ordered_json& value = json.at(key);
  if (value.is_array()) {
    for (const auto& item : value) add(item);
  } else {
    add(value);
  }
  return ids;
}

GenerationDefaults read_defaults(const ConfigObject& config) {
  GenerationDefaults defaults;
  const auto real = [&](const char* key, double least, double most) -> std::optional<float> {
    const auto value = config.number(key, least, most);
    return value ? std::optional(static_cast<float>(*value)) : std::nullopt;
  };
  defaults.temperature = real("temperature", 0.0, 100.0);
  defaults.top_p = real("top_p", 1e-6, 1.0);
  defaults.min_p = real("min_p", 0.0, 1.0);
  defaults.repetition_penalty = real("repetition_penalty", 1e-3, 100.0);
  if (config.has("top_k")) defaults.top_k = config.integer("top_k", 0, 1'000'000'000);
  // Said outright, it means greedy decoding. Files that do not say it are silent about sampling.
  if (!config.boolean("do_sample", true)) defaults.temperature = 0.0f;
  return defaults;
}

// `chat_template` of tokenizer_config.json: a text, or a list of named ones.
std::optional<std::string> named_template(const ordered_json& json, const std::string& path) {
  if (!json.is_object() || !json.contains("chat_template")) return std::nullopt;
  const ordered_json& value = json.at("chat_template");
  if (value.is_string()) return value.get<std::string>();
  if (!value.is_array()) return std::nullopt;
  for (const auto& item : value) {
    const ConfigObject entry(&item, path + ": chat_template");
    if (entry.string("name", "") == "default") return entry.string("template", "");
  }
  return std::nullopt;
}

std::optional<std::string> read_chat_template(const std::string& folder) {
  if (exists(folder + "/chat_template.jinja")) return read_text(folder + "/chat_template.jinja");
  for (const char* file : {"/tokenizer_config.json", "/chat_template.json"}) {
    const std::string path = folder + file;
    if (auto text = named_template(read_optional(path), path)) return text;
  }
  return std::nullopt;
}

// Tokenizers may know special tokens that a model has no rows for (Gemma's image token): they go.
// Anything else past the model's rows is a fault, "" if there is none.
std::string fit_vocabulary(std::int32_t vocab_size, Vocabulary* vocabulary) {
  const auto rows = static_cast<std::size_t>(vocab_size);
  const std::size_t size = vocabulary->tokens.size();
  if (size <= rows) return "";
  for (std::size_t i = rows; i < size; ++i) {
    const TokenKind kind = vocabulary->kinds.empty() ? TokenKind::kNormal : vocabulary->kinds[i];
    if (kind == TokenKind::kNormal || kind == TokenKind::kByte) {
      return "the tokenizer's token " + std::to_string(i) + " is past the model's " +
             std::to_string(rows);
    }
  }
  for (const auto& [name, id] :
       {std::pair("bos", vocabulary->bos_token), std::pair("eos", vocabulary->eos_token),
        std::pair("unknown", vocabulary->unknown_token)}) {
    if (id >= vocab_size) {
      return std::string("the tokenizer's ") + name + " token " + std::to_string(id) +
             " is past the model's " + std::to_string(rows);
    }
  }
  vocabulary->tokens.resize(rows);
  if (!vocabulary->kinds.empty()) vocabulary->kinds.resize(rows);
  if (!vocabulary->scores.empty()) vocabulary->scores.resize(rows);
  const auto past = [&](TokenId id) { return id >= vocab_size; };
  std::erase_if(vocabulary->left_stripping, past);
  std::erase_if(vocabulary->right_stripping, past);
  if (past(vocabulary->padding_token)) vocabulary->padding_token = kNoToken;
  return "";
}

std::uint64_t hash_folder(const std::string& folder, const SafetensorsFolder& weights) {
  std::uint64_t hash = 0;
  for (const std::string name : kHashedFiles) {
    const std::string path = folder + "/" + name;
    if (!exists(path)) continue;
    hash = xxh64(std::as_bytes(std::span(name)), hash);
    hash = xxh64(MappedFile(path).bytes(), hash);
  }
  return weights.content_hash(hash);
}

}  // namespace

ModelFiles read_model_folder(const std::string& path) {
  const std::string folder = path.ends_with('/') ? path.substr(0, path.size() - 1) : path;
  const std::string config_path = folder + "/config.json";
  if (!exists(config_path)) throw std::runtime_error(path + ": holds no config.json");
  ordered_json json = read_json_file(config_path);
  add_quantization_file(folder, &json);
  const ConfigObject config(&json, config_path);
  FolderConfig folder_config = read_folder_config(config);
  folder_config.model.name = model_name(folder, config);
  if (folder_config.model.encoder) apply_sentence_encoder(folder, &folder_config.model);

  ModelFiles files;
  const auto weights = std::make_shared<const SafetensorsFolder>(folder);
  files.tensors = std::make_unique<FolderTensors>(path, weights, folder_config);
  files.config = std::move(folder_config.model);
  if (files.tensors->find("token_embd.weight")->type == "BF16") {
    // The scale is a number of the embedding's type.
    float& scale = files.config.embedding_scale;
    scale = float_from_bfloat16(bfloat16_from_float(scale));
  }
  files.vocabulary = read_hf_vocabulary(folder);
  if (files.vocabulary) {
    const std::string fault = fit_vocabulary(files.config.vocab_size, &*files.vocabulary);
    if (!fault.empty()) files.tensors->fail(fault);
  }
  files.chat_template = read_chat_template(folder);
  const std::string generation_path = folder + "/generation_config.json";
  const ordered_json generation = read_optional(generation_path);
  if (generation.is_object()) {
    files.generation_defaults = read_defaults(ConfigObject(&generation, generation_path));
  }
  files.eos_token_ids =
      read_token_ids(generation, generation_path, "eos_token_id", files.config.vocab_size);
  if (files.eos_token_ids.empty() && !files.config.encoder) {
    files.eos_token_ids =
        read_token_ids(json, config_path, "eos_token_id", files.config.vocab_size);
  }
  files.content_hash = hash_folder(folder, *weights);
  return files;
}

}  // namespace batchmill
