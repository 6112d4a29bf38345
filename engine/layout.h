// Lays tensors one after the other into one buffer: first measures, then places.
#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/tensor.h"

namespace batchmill {

class Layout {
 public:
  // `base`: the buffer; null to measure.
  explicit Layout(void* base) : base_(static_cast<std::byte*>(base)) {}

  Tensor add(DType dtype, std::int32_t rows, std::int32_t cols) {
    const Tensor tensor{base_ == nullptr ? nullptr : base_ + size_bytes_, dtype, rows, cols};
    size_bytes_ += (tensor.bytes() + kAlignment - 1) / kAlignment * kAlignment;
    return tensor;
  }
  std::size_t size_bytes() const { return size_bytes_; }

 private:
  // What cuBLASLt takes for granted when it chooses an algorithm; the CPU's cache lines are
  // shorter.
  static constexpr std::size_t kAlignment = 256;

  std::byte* base_;
  std::size_t size_bytes_ = 0;
};

}  // namespace batchmill
