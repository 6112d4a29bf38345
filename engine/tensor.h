// Views of matrices in a backend's memory. Plain values; the memory belongs to a DeviceBuffer.
#pragma once

#include <cstddef>
#include <cstdint>

namespace batchmill {

// kI8 is a type of weights and of caches, kF8 (e4m3) one of caches; they come with scales, and
// tensors are never of them.
enum class DType : std::uint8_t { kF32 = 0, kBF16 = 1, kI8 = 2, kF8 = 3 };

constexpr std::int32_t dtype_bytes(DType dtype) {
  return dtype == DType::kF32 ? 4 : dtype == DType::kBF16 ? 2 : 1;
}
constexpr const char* dtype_name(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "f32";
    case DType::kBF16:
      return "bf16";
    case DType::kI8:
      return "int8";
    case DType::kF8:
      return "fp8";
  }
  return "";
}

// Row-major and contiguous, in the memory of one backend.
struct Tensor {
  void* data = nullptr;
  DType dtype = DType::kF32;
  std::int32_t rows = 0;
  std::int32_t cols = 0;

  std::size_t row_bytes() const { return static_cast<std::size_t>(cols) * dtype_bytes(dtype); }
  std::size_t bytes() const { return static_cast<std::size_t>(rows) * row_bytes(); }
  Tensor first_rows(std::int32_t count) const { return {data, dtype, count, cols}; }

  template <typename T>
  T* row(std::int32_t index) const {
    return static_cast<T*>(data) + static_cast<std::int64_t>(index) * cols;
  }
};

// Memory of a backend; freed when destroyed.
class DeviceBuffer {
 public:
  virtual ~DeviceBuffer() = default;
  void* data() const { return data_; }
  std::size_t size_bytes() const { return size_bytes_; }

 protected:
  DeviceBuffer(void* data, std::size_t size_bytes) : data_(data), size_bytes_(size_bytes) {}

 private:
  void* data_;
  std::size_t size_bytes_;
};

}  // namespace batchmill
