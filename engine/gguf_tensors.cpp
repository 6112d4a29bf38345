#include "engine/gguf_tensors.h"

#include <utility>

#include "engine/dequantize.h"

namespace batchmill {

GgufTensors::GgufTensors(std::shared_ptr<const GgufFile> file) : file_(std::move(file)) {
  infos_.reserve(file_->tensors().size());
  for (const GgufTensor& tensor : file_->tensors()) {
    const GgmlTypeInfo* type = find_type_info(tensor.type);
    index_.emplace(tensor.name, infos_.size());
    infos_.push_back({.name = std::string(tensor.name),
                      .type = type_name(tensor.type),
                      .readable = type != nullptr && type->supported,
                      .rows = static_cast<std::int64_t>(tensor.num_rows()),
                      .cols = static_cast<std::int64_t>(tensor.dims[0]),
                      .bytes = tensor.bytes.size()});
  }
}

const TensorInfo* GgufTensors::find(std::string_view name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &infos_[found->second];
}

const GgufTensor& GgufTensors::of(const TensorInfo& info) const {
  return file_->tensors()[static_cast<std::size_t>(&info - infos_.data())];
}

void GgufTensors::read_row(const TensorInfo& tensor, std::int64_t row, float* output) const {
  const GgufTensor& source = of(tensor);
  const auto bytes = static_cast<std::int64_t>(row_bytes(source.type, tensor.cols));
  dequantize_row(source.type, source.bytes.data() + row * bytes, tensor.cols, output);
}

void GgufTensors::release(const TensorInfo& tensor) const { file_->release(of(tensor)); }

}  // namespace batchmill
