// An array that the host writes anew each step and the device reads: pinned memory here, as much
// there. The addresses stay as long as the array need not grow.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>

#include "cuda/device_buffer.h"
#include "cuda/stream.h"

namespace batchmill {

class StagedUpload {
 public:
  // Makes room; what was there is lost. True if the device address is another one now. The stream
  // must have done all work that reads the array.
  bool reserve(std::size_t bytes) {
    if (device_ != nullptr && bytes <= device_->size_bytes()) return false;
    const std::size_t size = std::max(bytes, device_ == nullptr ? 0 : 2 * device_->size_bytes());
    sent_.wait();
    device_.reset();  // and stays so if there is no memory
    host_ = std::make_unique<PinnedBuffer>(size);
    device_ = std::make_unique<CudaBuffer>(size);
    return true;
  }

  // To write to; waits until what was sent before has been read.
  std::byte* begin_write() {
    sent_.wait();
    return host_->data();
  }
  void send(std::size_t bytes, CudaStream* stream) {
    stream->copy_to_device(device_->data(), host_->data(), bytes);
    sent_.record(*stream);
  }
  std::byte* device() const { return static_cast<std::byte*>(device_->data()); }

 private:
  std::unique_ptr<CudaBuffer> device_;
  std::unique_ptr<PinnedBuffer> host_;
  CudaEvent sent_;
};

}  // namespace batchmill
