// Turns requests into embeddings on one device: each step runs as many whole sequences as fit, one
// behind the other, without padding. One owner thread.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "engine/batch.h"
#include "engine/encoder_runner.h"
#include "engine/options.h"
#include "engine/step_engine.h"
#include "engine/step_limit.h"

namespace batchmill {

class Embedder : public StepEngine {
 public:
  // `runner` must outlive the embedder. Of the options, max_num_batched_tokens and
  // max_context_tokens count.
  Embedder(const EngineOptions& options, EncoderRunner* runner);

  // The longest sequence: min(options, model).
  std::int32_t max_sequence_tokens() const;

  // Of the request, `id` and `prompt` count.
  void add(Request request) override;

  // Takes the oldest request and, in order, all others that still fit max_num_batched_tokens; a
  // longer one runs alone. A vector that holds NaN or infinity ends its request with `error`.
  StepOutput& step() override;
  // As many whole sequences as fit half the rows.
  std::int32_t shrink_steps() override;
  std::int32_t grow_steps() override { return step_limit_.raise(); }
  void cancel(RequestId id) override;
  bool has_work() const override { return !waiting_.empty() || !cancelled_.empty(); }
  EngineStats stats() const override;

 private:
  // Indexes into waiting_ of the next step's requests, ascending.
  std::vector<std::size_t> choose() const;
  void fill_batch(const std::vector<std::size_t>& chosen);

  EngineOptions options_;
  StepLimit step_limit_;
  EncoderRunner* const runner_;
  std::deque<Request> waiting_;
  std::vector<RequestId> cancelled_;
  StepOutput output_;
  Batch batch_;
  std::vector<float> embeddings_;  // [S, embedding_size]
  EngineStats stats_;
};

}  // namespace batchmill
