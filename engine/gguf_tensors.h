// The tensors of a GGUF file. Owned by a Model; immutable, any thread.
#pragma once

#include <memory>
#include <unordered_map>
#include <vector>

#include "engine/gguf.h"
#include "engine/tensor_source.h"

namespace batchmill {

class GgufTensors : public TensorSource {
 public:
  explicit GgufTensors(std::shared_ptr<const GgufFile> file);

  const std::vector<TensorInfo>& tensors() const override { return infos_; }
  const TensorInfo* find(std::string_view name) const override;
  void read_row(const TensorInfo& tensor, std::int64_t row, float* output) const override;
  void release(const TensorInfo& tensor) const override;
  const std::string& path() const override { return file_->path(); }

 private:
  const GgufTensor& of(const TensorInfo& info) const;

  std::shared_ptr<const GgufFile> file_;
  std::vector<TensorInfo> infos_;  // beside file_->tensors()
  std::unordered_map<std::string_view, std::size_t> index_;
};

}  // namespace batchmill
