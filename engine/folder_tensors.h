// The tensors of a model folder in GGUF's names and conventions: matrices [out, in], dequantized if
// the folder's are packed. Owned by a Model; immutable, any thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <variant>
#include <vector>

#include "engine/folder_names.h"
#include "engine/packed_linear.h"
#include "engine/safetensors_folder.h"
#include "engine/tensor_source.h"

namespace batchmill {

class FolderTensors : public TensorSource {
 public:
  // Throws std::runtime_error naming the array that is missing, that does not fit or that the model
  // has no use for.
  FolderTensors(std::string path, std::shared_ptr<const SafetensorsFolder> files,
                const FolderConfig& config);

  const std::vector<TensorInfo>& tensors() const override { return infos_; }
  const TensorInfo* find(std::string_view name) const override;
  void read_row(const TensorInfo& tensor, std::int64_t row, float* output) const override;
  void release(const TensorInfo& tensor) const override;
  const std::string& path() const override { return path_; }

 private:
  using Part = std::variant<SafetensorsFolder::Entry, PackedLinear>;

  // Beside infos_.
  struct Source {
    std::vector<Part> parts;  // of the same shape, stacked along the rows
    bool transposed = false;
    float added = 0.0f;
  };

  // Rows of a matrix that lies in the file with its inputs outermost are read several at a time;
  // each thread keeps the strip that it read last.
  struct Strip {
    const Source* source = nullptr;
    std::int64_t first = 0;
    std::shared_ptr<const std::vector<float>> rows;
  };

  void add(const TensorMapping& mapping, const FolderConfig& config);
  Part open_part(const std::string& name, const FolderConfig& config) const;
  void check_all_used(const FolderConfig& config, const FolderNames& names) const;
  const Source& of(const TensorInfo& info) const;
  std::shared_ptr<const std::vector<float>> strip_at(const Source& source, std::int64_t first,
                                                     std::int64_t count, std::int64_t cols) const;
  void read_strip(const Source& source, std::int64_t first, std::int64_t count, std::int64_t cols,
                  float* output) const;

  std::string path_;
  std::shared_ptr<const SafetensorsFolder> files_;
  std::vector<TensorInfo> infos_;
  std::vector<Source> sources_;
  std::unordered_map<std::string_view, std::size_t> index_;
  mutable std::mutex mutex_;  // guards strips_
  mutable std::map<std::thread::id, Strip> strips_;
};

}  // namespace batchmill
