// Turns requests into completions on one device: continuous batching over one paged KV cache with
// prefix reuse. One owner thread; no clock, no logging, no global state: the same calls give the
// same results.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "engine/model_runner.h"
#include "engine/options.h"
#include "engine/request.h"
#include "engine/step_engine.h"
#include "engine/types.h"

namespace batchmill {

class Tokenizer;

class Engine : public StepEngine {
 public:
  // `runner` and `tokenizer` must outlive the engine. `tokenizer` may be null: texts are then empty
  // and stop strings never match.
  Engine(const EngineOptions& options, ModelRunner* runner, const Tokenizer* tokenizer);
  ~Engine() override;
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // The longest sequence (prompt + generated tokens) this engine can hold: min(model context as
  // given by options, KV pool). A request whose prompt leaves no room for one token can never run.
  std::int32_t max_sequence_tokens() const;

  // Queues a request. Precondition (checked, std::invalid_argument): the prompt is not empty, its
  // ids are in the vocabulary and prompt + 1 token fit max_sequence_tokens().
  void add(Request request) override;

  // One step: schedule, run, sample, collect. Does nothing when there is no work. Where the runner
  // draws tokens, the next step is begun before this one's are read, and is under way when the call
  // returns. When the runner throws, what is under way is rolled back (its new KV leaves the tree,
  // its rows count as not computed) and the exception goes on; the engine stays usable.
  StepOutput& step() override;

  // The step's rows are halved; sequences that get none wait for a later step.
  std::int32_t shrink_steps() override;
  std::int32_t grow_steps() override;

  // Ends a request; it appears once in the next step's finished list as kCancelled. Unknown ids are
  // ignored.
  void cancel(RequestId id) override;

  bool has_work() const override;

  // How many prompt tokens of `prompt` are in the prefix tree now (never more than size − 1).
  std::int32_t cached_prefix_tokens(std::span<const TokenId> prompt) const;

  EngineStats stats() const override;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace batchmill
