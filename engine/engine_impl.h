// The parts of an Engine: requests, scheduler, sampler. Owned by the Engine; one thread.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "engine/engine.h"
#include "engine/request_state.h"
#include "engine/sampler.h"
#include "engine/scheduler.h"
#include "engine/step_draws.h"

namespace batchmill {

class Engine::Impl {
 public:
  Impl(const EngineOptions& options, ModelRunner* runner, const Tokenizer* tokenizer);
  ~Impl();

  std::int32_t max_sequence_tokens() const { return max_sequence_tokens_; }
  void add(Request request);
  StepOutput& step();
  std::int32_t shrink_steps();
  std::int32_t grow_steps() { return scheduler_.step_limit().raise(); }
  void cancel(RequestId id);
  bool has_work() const {
    return !requests_.empty() || !finished_.empty() || under_way_ != nullptr;
  }
  std::int32_t cached_prefix_tokens(std::span<const TokenId> prompt) const;
  EngineStats stats() const;

 private:
  // Of the step's logits; the blocks' maxima are empty where the runner does not know them. Where
  // it has drawn from the row, one token for each choice, there are no logits.
  struct LogitsRow {
    std::span<const float> logits;
    std::span<const float> maxima;
    std::span<const Draw> draws;
  };

  // A step from its plan until its tokens are read.
  struct Step : ScheduledStep {
    StepDraws draws;  // if the runner draws tokens
  };

  // Plans the next step and, where the runner draws tokens, begins it.
  void begin(Step* step);
  bool can_begin_behind(const Step& step);
  // Waits for the oldest step's tokens or logits.
  void end(Step* step);
  void fail_steps();
  void count_rows(const ScheduledSequence& entry);
  void use_logits(const Step& step, const ScheduledSequence& entry);
  bool collect_prompt_logprobs(const Step& step, const ScheduledSequence& entry,
                               RequestState& state);
  void start_choices(RequestState& state, const LogitsRow& row);
  // Samples a choice's next token; ends the choice, or the request, where it is time.
  void advance(RequestState& state, std::int32_t index, const LogitsRow& row);
  std::optional<TokenId> next_token(const Sequence& sequence, std::int32_t index,
                                    const LogitsRow& row);
  ChoiceState& open_choice(RequestState& state);
  void end_choice(RequestState& state, ChoiceState& choice, FinishReason reason);
  void fail(RequestState& state);
  void collect(RequestState& state);
  LogitsRow logits_row(const Step& step, std::int32_t row) const;
  RequestWork& work_of(RequestState& state);

  EngineOptions options_;
  ModelRunner* runner_;
  const Tokenizer* tokenizer_;
  std::int32_t vocab_size_;
  std::int32_t max_sequence_tokens_;
  Scheduler scheduler_;  // before requests_: their sequences hold its blocks
  Sampler sampler_;
  std::unordered_map<RequestId, std::unique_ptr<RequestState>> requests_;
  std::vector<std::unique_ptr<RequestState>> ended_;  // in this step; the step still points at them
  std::vector<RequestOutput> finished_;  // not yet handed out
  StepOutput output_;
  bool draws_tokens_;  // the runner does
  std::array<Step, 2> steps_;
  Step* under_way_ = nullptr;  // one of them: begun, and nothing of it read
  std::int32_t tried_rows_ = 0;  // of the step that was begun or waited for last
  std::vector<float> logits_;  // [most rows brought to the host so far, vocab]
  std::uint64_t next_order_ = 0;
  EngineStats totals_;  // the counters that only grow; num_rows also tells steps apart
  std::int64_t step_number_ = 0;
  mutable std::int64_t stats_number_ = 0;  // tells calls of stats() apart
};

}  // namespace batchmill
