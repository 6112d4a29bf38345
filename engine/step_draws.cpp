#include "engine/step_draws.h"

#include "engine/request_state.h"

namespace batchmill {

SamplingContext sampling_context(const Sequence& sequence, std::int32_t choice,
                                 std::span<const TokenId> eos_token_ids) {
  const Request& request = sequence.request->request;
  SamplingContext context;
  context.params = &request.params;
  context.eos_token_ids = eos_token_ids;
  context.prompt = sequence.range(0, sequence.num_prompt_tokens);
  context.generated = sequence.range(sequence.num_prompt_tokens, sequence.num_generated());
  context.choice = request.first_choice + choice;
  return context;
}

void StepDraws::collect(std::span<const ScheduledSequence> scheduled,
                        std::span<const TokenId> eos_token_ids) {
  places_.clear();
  draws_.clear();
  host_rows_.clear();
  for (const ScheduledSequence& entry : scheduled) {
    if (entry.num_logits_rows == 0) continue;
    Sequence& sequence = *entry.sequence;
    const SamplingParams& params = sequence.request->request.params;
    if (!params.logprobs && !sequence.wants_prompt_logprobs()) {
      add_draws(&sequence, eos_token_ids);  // one row, the sequence's last
      continue;
    }
    for (std::int32_t i = 0; i < entry.num_logits_rows; ++i) {
      places_.push_back({static_cast<std::int32_t>(host_rows_.size()), 0});
      host_rows_.push_back(entry.first_logits_row + i);
    }
  }
}

void StepDraws::add_draws(Sequence* sequence, std::span<const TokenId> eos_token_ids) {
  // The first token of every choice is drawn where the prompt ends.
  const bool is_first = sequence->num_generated() == 0;
  const std::int32_t begin = is_first ? 0 : sequence->order.choice;
  const std::int32_t end = is_first ? sequence->request->request.num_choices : begin + 1;
  sequence->draw = static_cast<std::int32_t>(draws_.size());
  const auto row = static_cast<std::int32_t>(places_.size());
  places_.push_back({static_cast<std::int32_t>(draws_.size()), end - begin});
  for (std::int32_t choice = begin; choice < end; ++choice) {
    draws_.push_back({sampling_context(*sequence, choice, eos_token_ids), row});
  }
}

std::span<const Draw> StepDraws::draws_of(std::int32_t row) const {
  const Place& found = place(row);
  if (found.num_draws == 0) return {};
  return std::span(draws_).subspan(static_cast<std::size_t>(found.begin),
                                   static_cast<std::size_t>(found.num_draws));
}

}  // namespace batchmill
