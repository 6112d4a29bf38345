// An array that the host writes anew each step and the device reads: pinned memory here, as much
// there. The addresses stay as long as the array need not grow.
//
// A step may be sent while the one before it runs: the copy to the device is behind that step's
// work in the stream, and the host's memory is free as soon as that step has begun.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>

#include "cuda/device_buffer.h"
#include "cuda/stream.h"

namespace batchmill {

class StagedUpload {
 public:
  // Makes room; what was there is lost. True if the device address is another one now: the stream
  // has done all its work then.
  bool reserve(std::size_t bytes, CudaStream* stream) {
    if (device_ != nullptr && bytes <= device_->size_bytes()) return false;
    const std::size_t size = std::max(bytes, device_ == nullptr ? 0 : 2 * device_->size_bytes());
    stream->synchronize();
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
