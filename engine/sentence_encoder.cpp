#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string_view>
#include <system_error>

#include "engine/folder_config.h"
#include "engine/json_file.h"

namespace batchmill {
namespace {

constexpr std::int64_t kMaxContext = 1 << 28;

bool exists(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

// "sentence_transformers.models.Pooling" → "Pooling"
std::string last_part(const std::string& name) { return name.substr(name.rfind('.') + 1); }

void check_pooling(const std::string& path) {
  const nlohmann::ordered_json json = read_json_file(path);
  const ConfigObject pooling(&json, path);
  constexpr std::string_view kPrefix = "pooling_mode_";
  bool mean = pooling.string("pooling_mode", "") == "mean";
  for (const auto& [key, value] : json.items()) {
    if (!key.starts_with(kPrefix) || !pooling.boolean(key.c_str(), false)) continue;
    if (key != "pooling_mode_mean_tokens") pooling.refuse(key.c_str());
    mean = true;
  }
  if (pooling.has("pooling_mode") && !mean) pooling.refuse("pooling_mode");
  if (!mean) pooling.fail("'pooling_mode_mean_tokens' is not true");
}

}  // namespace

void apply_sentence_encoder(const std::string& folder, ModelConfig* model) {
  const std::string lengths_path = folder + "/sentence_bert_config.json";
  if (exists(lengths_path)) {
    const nlohmann::ordered_json json = read_json_file(lengths_path);
    const ConfigObject lengths(&json, lengths_path);
    model->max_context_tokens =
        std::min(model->max_context_tokens,
                 lengths.integer("max_seq_length", 1, kMaxContext, model->max_context_tokens));
  }
  const std::string modules_path = folder + "/modules.json";
  if (!exists(modules_path)) return;
  const nlohmann::ordered_json modules = read_json_file(modules_path);
  if (!modules.is_array()) throw std::runtime_error(modules_path + ": not a list");
  bool normalized = false;
  for (const auto& json : modules) {
    const ConfigObject module(&json, modules_path);
    const std::string type = last_part(module.string("type", ""));
    const std::string path = module.string("path", "");
    if (path.starts_with('/') || path.find("..") != std::string::npos) module.refuse("path");
    if (type == "Transformer") {
      if (!path.empty()) module.refuse("path");
    } else if (type == "Pooling") {
      check_pooling(folder + "/" + path + "/config.json");
    } else if (type == "Normalize") {
      normalized = true;
    } else {
      module.refuse("type");
    }
  }
  if (!normalized) {
    throw std::runtime_error(modules_path +
                             ": embeddings that are not scaled to unit length (no Normalize "
                             "module) are not supported");
  }
}

}  // namespace batchmill
