// What the Engine asks of a model on a device. The runner decides nothing: it computes one Batch.
#pragma once

#include <cstdint>
#include <span>
#include <stdexcept>

#include "engine/batch.h"
#include "engine/draw.h"
#include "engine/logits_scan.h"

namespace batchmill {

class ModelRunner {
 public:
  virtual ~ModelRunner() = default;

  virtual std::int32_t vocab_size() const = 0;
  virtual std::int32_t block_size_tokens() const = 0;
  virtual std::int32_t num_blocks() const = 0;

  // Applies batch.copies, runs the layers (each stores K/V of all rows before it attends) and
  // writes float32 logits of batch.logits_rows into `logits` [R, vocab_size]. Every layer's K/V of
  // the step's rows are valid afterwards. Throws std::runtime_error on a device failure; the K/V of
  // the step's slots are then undefined, all others are untouched.
  virtual void forward(const Batch& batch, std::span<float> logits) = 0;

  // Whether the runner can choose tokens where the logits are.
  virtual bool draws_tokens() const { return false; }

  // For runners that draw tokens. As forward(), but draws what Sampler would for each of `draws`,
  // and writes the logits of `host_rows` alone, indices into batch.logits_rows that ascend.
  virtual void forward_and_draw(const Batch& /*batch*/, std::span<Draw> /*draws*/,
                                std::span<const std::int32_t> /*host_rows*/,
                                std::span<float> /*logits*/) {
    throw std::logic_error("this runner draws no tokens");
  }

  // Of the logits that the last forward() wrote, if the runner knows it; unchanged until the next.
  virtual LogitsScan* logits_scan() { return nullptr; }
};

}  // namespace batchmill
