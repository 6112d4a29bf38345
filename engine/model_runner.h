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

  // Whether the runner can choose tokens where the logits are. It runs steps by begin() and end()
  // then, and one step may be begun behind another: at most two are under way. They are computed in
  // the order in which they were begun. If either function throws, all steps under way have failed:
  // drop_steps() must follow.
  virtual bool draws_tokens() const { return false; }

  // Queues forward() and draws from its logits; returns when it can. What `batch` and `draws` point
  // to may change then. Tokens that are not known (batch.drawn_tokens; in a draw's context the last
  // of `generated`) are those of the step before, which has the draws that are named.
  virtual void begin(const Batch& /*batch*/, std::span<const Draw> /*draws*/) {
    throw std::logic_error("this runner draws no tokens");
  }

  // Waits for the oldest step under way. Fills in its draws' tokens, those that Sampler gives, and
  // writes the logits of `host_rows`, indices into its batch.logits_rows that ascend. No step may
  // have been begun behind one with host rows.
  virtual void end(std::span<Draw> /*draws*/, std::span<const std::int32_t> /*host_rows*/,
                   std::span<float> /*logits*/) {
    throw std::logic_error("this runner draws no tokens");
  }

  // Waits for the steps under way and forgets them, whatever became of them.
  virtual void drop_steps() noexcept {}

  // Of the logits that the last forward() wrote, if the runner knows it; unchanged until the next.
  virtual LogitsScan* logits_scan() { return nullptr; }
};

}  // namespace batchmill
