// A request on its way through the engine, with its choices and counters. Owned by the Engine until
// its output is collected; one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "engine/sequence.h"
#include "engine/stop_checker.h"

namespace batchmill {

struct ChoiceState {
  ChoiceState(const Tokenizer* tokenizer, const SamplingParams* params,
              std::span<const TokenId> eos_token_ids)
      : stop_checker(tokenizer, params, eos_token_ids) {}

  Sequence sequence;
  StopChecker stop_checker;
  Choice output;
};

struct RequestState {
  explicit RequestState(Request added)
      : request(std::move(added)), was_computed(request.prompt.size(), false) {}

  Request request;
  std::uint64_t order = 0;

  // Choice 0 computes the prompt; the others exist from its end on.
  std::vector<std::unique_ptr<ChoiceState>> choices;
  std::int32_t num_open_choices = 0;
  bool has_prefill_ended = false;
  bool has_ended = false;

  std::vector<bool> was_computed;  // [prompt] rows that entered layer 0 for this request
  std::int32_t num_cached_tokens = 0;  // counts down as they do, until the prefill ends
  std::int32_t num_recomputed_tokens = 0;
  std::vector<PositionLogprobs> prompt_logprobs;
  std::string error;

  // Place of this request in the step's work list, if it is in the step of that number.
  std::int64_t work_step = -1;
  std::size_t work_index = 0;
  std::int64_t counted_in_stats = 0;  // by the call of stats() of that number
};

}  // namespace batchmill
