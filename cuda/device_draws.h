// Draws tokens from logits on the device: sends what the draws depend on, runs the sampler kernel,
// brings the tokens back. Owned by a backend; one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "cuda/device_buffer.h"
#include "cuda/staged_upload.h"
#include "cuda/stream.h"
#include "engine/draw.h"
#include "engine/tensor.h"

namespace batchmill {

class DeviceDraws {
 public:
  // Fills in the tokens of `draws`, from rows of logits [R, V] f32. Returns when all work of the
  // stream has been done. Throws CudaError or std::bad_alloc.
  void run(const Tensor& logits, std::span<Draw> draws, CudaStream* stream);

 private:
  StagedUpload upload_;  // rows, then the lists that they have parts of
  std::unique_ptr<CudaBuffer> changed_;  // [draws that change logits, V] the changed logits
  std::unique_ptr<CudaBuffer> seen_;  // likewise: how often tokens have been seen
  std::unique_ptr<CudaBuffer> chosen_;  // [draws]
  std::unique_ptr<PinnedBuffer> chosen_on_host_;
};

}  // namespace batchmill
