// All safetensors files of a model folder: model.safetensors, or the shards that
// model.safetensors.index.json lists. Immutable, any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "engine/safetensors.h"

namespace batchmill {

class SafetensorsFolder {
 public:
  // Throws std::system_error or std::runtime_error naming the file and the tensor that is missing,
  // broken or there twice.
  explicit SafetensorsFolder(const std::string& folder);

  struct Entry {
    const SafetensorsTensor* tensor = nullptr;
    const SafetensorsFile* file = nullptr;
  };

  // Null if there is none.
  const Entry* find(std::string_view name) const;
  const std::vector<Entry>& tensors() const { return entries_; }  // file by file

  // Over all files; the same bytes in files of the same names give the same hash.
  std::uint64_t content_hash(std::uint64_t seed) const;

 private:
  void open_shards(const std::string& folder, const std::string& index_path);
  void add_file(const std::string& path);

  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::vector<Entry> entries_;
  std::unordered_map<std::string_view, std::size_t> index_;
};

}  // namespace batchmill
