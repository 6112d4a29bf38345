// A model's tensors by name, whatever files they lie in. Immutable and safe to share between
// threads.
//
// Names, shapes and conventions are GGUF's ("blk.0.attn_q.weight"): matrices are [out, in], Gemma's
// norm weights hold 1 + w, the experts of a layer are stacked in one tensor. Other formats are
// presented in them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace batchmill {

struct TensorInfo {
  std::string name;
  std::string type;  // as the file names it: "Q4_0", "BF16"
  bool readable = true;  // read_row() knows the type
  std::int64_t rows = 1;  // product of all dimensions but the contiguous one
  std::int64_t cols = 0;
  std::size_t bytes = 0;  // in the file
};

class TensorSource {
 public:
  virtual ~TensorSource() = default;

  virtual const std::vector<TensorInfo>& tensors() const = 0;  // in the file's order
  virtual const TensorInfo* find(std::string_view name) const = 0;  // null if there is none

  // Writes row `row` of one of tensors() as floats [cols] to `output`.
  virtual void read_row(const TensorInfo& tensor, std::int64_t row, float* output) const = 0;

  // The tensor will hardly be read again: memory that mirrors its part of the file may go.
  virtual void release(const TensorInfo& tensor) const = 0;

  virtual const std::string& path() const = 0;  // the model's, for messages

  // An error about the model's content, for those who read it.
  [[noreturn]] void fail(const std::string& message) const {
    throw std::runtime_error(path() + ": " + message);
  }
};

}  // namespace batchmill
