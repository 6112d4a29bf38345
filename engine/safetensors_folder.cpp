#include "engine/safetensors_folder.h"

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <system_error>

#include "engine/json_file.h"

namespace batchmill {
namespace {

constexpr const char* kSingleFile = "/model.safetensors";
constexpr const char* kIndexFile = "/model.safetensors.index.json";

std::string_view text_of(const MappedFile& file) {
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

[[noreturn]] void fail(const std::string& path, const std::string& message) {
  throw std::runtime_error(path + ": " + message);
}

}  // namespace

SafetensorsFolder::SafetensorsFolder(const std::string& folder) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  if (fs::exists(folder + kSingleFile, ignored)) {
    add_file(folder + kSingleFile);
  } else if (fs::exists(folder + kIndexFile, ignored)) {
    open_shards(folder, folder + kIndexFile);
  } else if (fs::exists(folder + "/pytorch_model.bin", ignored) ||
             fs::exists(folder + "/pytorch_model.bin.index.json", ignored)) {
    fail(folder, "pytorch_model.bin is not supported; the folder holds no model.safetensors");
  } else {
    fail(folder, "holds neither model.safetensors nor model.safetensors.index.json");
  }
}

void SafetensorsFolder::open_shards(const std::string& folder, const std::string& index_path) {
  const MappedFile index_file(index_path);
  nlohmann::json index;
  try {
    index = parse_json_table(text_of(index_file));
  } catch (const std::runtime_error& error) {
    fail(index_path, error.what());
  }
  const auto map = index.is_object() ? index.find("weight_map") : index.end();
  if (map == index.end() || !map->is_object()) fail(index_path, "'weight_map' is no object");
  std::map<std::string, std::vector<std::string>> shards;
  for (const auto& [tensor, shard] : map->items()) {
    if (!shard.is_string()) fail(index_path, "the shard of tensor '" + tensor + "' is no text");
    const auto name = shard.get<std::string>();
    // A plain name: nothing outside the folder is opened.
    if (name.empty() || name.find('/') != std::string::npos ||
        name.find('\0') != std::string::npos || name == "." || name == "..") {
      fail(index_path, "the shard of tensor '" + tensor + "' is no file name");
    }
    shards[name].push_back(tensor);
  }
  for (const auto& [name, tensors] : shards) {
    const std::string path = folder + "/" + name;
    std::error_code ignored;
    if (!std::filesystem::exists(path, ignored)) {
      fail(index_path,
           "shard " + name + ", which holds tensor '" + tensors.front() + "', is missing");
    }
    add_file(path);
    for (const std::string& tensor : tensors) {
      const Entry* entry = find(tensor);
      if (entry == nullptr || entry->file != files_.back().get()) {
        fail(path, "tensor '" + tensor +
                       "' is missing, model.safetensors.index.json says it is "
                       "here");
      }
    }
  }
  if (files_.empty()) fail(index_path, "'weight_map' is empty");
}

void SafetensorsFolder::add_file(const std::string& path) {
  files_.push_back(std::make_unique<SafetensorsFile>(path));
  const SafetensorsFile* file = files_.back().get();
  for (const SafetensorsTensor& tensor : file->tensors()) {
    const auto [other, added] = index_.emplace(tensor.name, entries_.size());
    if (!added) {
      fail(path, "tensor '" + tensor.name + "' is also in " + entries_[other->second].file->path());
    }
    entries_.push_back({&tensor, file});
  }
}

const SafetensorsFolder::Entry* SafetensorsFolder::find(std::string_view name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &entries_[found->second];
}

std::uint64_t SafetensorsFolder::content_hash(std::uint64_t seed) const {
  for (const auto& file : files_) seed = file->content_hash(seed);
  return seed;
}

}  // namespace batchmill
