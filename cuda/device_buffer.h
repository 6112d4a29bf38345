// Memory of the current device, and pinned memory of the host that it can copy by itself.
#pragma once

#include <cstddef>

#include "cuda/stream.h"
#include "engine/tensor.h"

namespace batchmill {

class CudaBuffer : public DeviceBuffer {
 public:
  // Throws std::bad_alloc.
  explicit CudaBuffer(std::size_t bytes) : DeviceBuffer(allocate_device_memory(bytes), bytes) {}
  ~CudaBuffer() override { free_device_memory(data()); }
};

class PinnedBuffer {
 public:
  explicit PinnedBuffer(std::size_t bytes)
      : data_(allocate_pinned_memory(bytes)), size_bytes_(bytes) {}
  ~PinnedBuffer() { free_pinned_memory(data_); }
  PinnedBuffer(const PinnedBuffer&) = delete;
  PinnedBuffer& operator=(const PinnedBuffer&) = delete;
  std::byte* data() const { return static_cast<std::byte*>(data_); }
  std::size_t size_bytes() const { return size_bytes_; }

 private:
  void* data_;
  std::size_t size_bytes_;
};

}  // namespace batchmill
