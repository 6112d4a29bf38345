// What can be told about a model that cannot run.
#include <exception>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <type_traits>

#include "engine/config_object.h"
#include "engine/folder_config.h"
#include "engine/gguf.h"
#include "engine/gguf_config.h"
#include "engine/json_file.h"
#include "engine/safetensors_folder.h"
#include "tools/model_description.h"

namespace batchmill {
namespace {

constexpr std::size_t kLongestText = 200;  // of metadata that are shown

// Numbers, flags and short texts of the metadata, in the file's order.
Json metadata_json(const GgufFile& file) {
  Json json = Json::object();
  for (const std::string_view key : file.keys()) {
    std::visit(
        [&](const auto& content) {
          using Content = std::decay_t<decltype(content)>;
          if constexpr (std::is_same_v<Content, std::string_view>) {
            if (content.size() <= kLongestText) json[std::string(key)] = std::string(content);
          } else if constexpr (!std::is_same_v<Content, GgufArray>) {
            json[std::string(key)] = content;
          }
        },
        file.find(key)->value);
  }
  return json;
}

Json text_of(const GgufFile& file, const char* key) {
  const GgufValue* value = file.find(key);
  const auto* found = value == nullptr ? nullptr : std::get_if<std::string_view>(&value->value);
  return found == nullptr ? Json() : Json(std::string(*found));
}

// What `read` gives, if it does not throw: what is wrong has been said before.
template <typename Read>
auto if_readable(Read read) -> std::optional<decltype(read())> {
  try {
    return read();
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

void add_shapes(const std::optional<ModelConfig>& config, const CpuOptions& options, Json* json) {
  if (!config) return;
  describe_shapes(*config, plan_cpu(*config, options), options.block_size_tokens, json);
}

Json describe_file(const std::string& path, const CpuOptions& options, Json json) {
  const GgufFile file(path);
  json["architecture"] = text_of(file, "general.architecture");
  json["name"] = text_of(file, "general.name");
  add_shapes(if_readable([&] { return read_model_config(file); }), options, &json);
  std::vector<TypeAndBytes> tensors;
  for (const GgufTensor& tensor : file.tensors()) {
    tensors.emplace_back(type_name(tensor.type), tensor.bytes.size());
  }
  json["tensors"] = tensor_counts(tensors);
  json["metadata"] = metadata_json(file);
  return json;
}

Json describe_folder(const std::string& path, const CpuOptions& options, Json json) {
  const Json content = read_json_file(path + "/config.json");
  const ConfigObject config(&content, path + "/config.json");
  json["architecture"] = config.string("model_type", "");
  json["name"] = std::filesystem::path(path).filename().string();
  add_shapes(if_readable([&] { return read_folder_config(config).model; }), options, &json);
  std::vector<TypeAndBytes> tensors;
  (void)if_readable([&] {
    const SafetensorsFolder files(path);
    for (const auto& entry : files.tensors()) {
      tensors.emplace_back(entry.tensor->dtype, entry.tensor->bytes.size());
    }
    return true;
  });
  json["tensors"] = tensor_counts(tensors);
  Json& metadata = json["metadata"] = Json::object();
  for (const auto& [key, value] : content.items()) {
    if (value.is_primitive()) metadata[key] = value;
  }
  return json;
}

}  // namespace

Json describe_refused_model(const std::string& path, const std::string& reason,
                            const CpuOptions& options) {
  const Json head = {{"path", path},
                     {"architecture", nullptr},
                     {"name", nullptr},
                     {"supported", false},
                     {"reason", reason}};
  const auto described = if_readable([&] {
    return std::filesystem::is_directory(path) ? describe_folder(path, options, head)
                                               : describe_file(path, options, head);
  });
  return described.value_or(Json());
}

}  // namespace batchmill
