// Draws tokens from logits on the device: sends what the draws depend on, runs the sampler kernel,
// brings the tokens back. One step's draws may be begun while those of the step before are under
// way. Owned by a backend; one thread.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "cuda/device_buffer.h"
#include "cuda/staged_upload.h"
#include "cuda/stream.h"
#include "engine/backend.h"
#include "engine/draw.h"
#include "engine/tensor.h"

namespace batchmill {

class DeviceDraws {
 public:
  // Queues draws from rows of logits [R, V] f32 of the batch. At most two steps' are under way.
  // Throws CudaError or std::bad_alloc.
  void begin(const Tensor& logits, std::span<const Draw> draws, const Batch& batch,
             CudaStream* stream);
  // Waits for the oldest step's and fills in their tokens.
  void end(std::span<Draw> draws);
  // Forgets what is under way. The stream may still have work to do for it.
  void drop() { num_under_way_ = 0; }

  // On the device: the tokens that the draws begun last choose, once the stream has come to them.
  const std::int32_t* chosen() const;

 private:
  struct Step {
    StagedUpload upload;  // rows, then the lists that they have parts of
    std::unique_ptr<CudaBuffer> chosen;  // [draws]
    std::unique_ptr<PinnedBuffer> chosen_on_host;
    CudaEvent done;
  };

  std::array<Step, 2> steps_;  // take turns
  std::size_t last_ = 0;  // that was begun
  std::size_t num_under_way_ = 0;
  std::vector<int> group_ends_;  // of the draws begun last
  std::unique_ptr<CudaBuffer> changed_;  // [draws of a group, V] the changed logits
  std::unique_ptr<CudaBuffer> seen_;  // likewise: how often tokens have been seen
};

}  // namespace batchmill
