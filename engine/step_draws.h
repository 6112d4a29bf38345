// What a step asks of its logits where the runner draws tokens by itself: the draws, and the rows
// whose logits the engine must see. Owned by the Engine; one thread. Lists keep their memory.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/draw.h"
#include "engine/scheduler.h"

namespace batchmill {

// Of the next token of a sequence; `choice` is its index within the request.
SamplingContext sampling_context(const Sequence& sequence, std::int32_t choice,
                                 std::span<const TokenId> eos_token_ids);

class StepDraws {
 public:
  // Before the step runs. What wants log-probabilities is sampled where the logits are looked at.
  // Tells the sequences which draws their next tokens are.
  void collect(std::span<const ScheduledSequence> scheduled,
               std::span<const TokenId> eos_token_ids);

  std::span<Draw> draws() { return draws_; }
  // Indices into Batch::logits_rows, ascending.
  std::span<const std::int32_t> host_rows() const { return host_rows_; }

  // The draws from a row of Batch::logits_rows, one for each choice that draws from it.
  std::span<const Draw> draws_of(std::int32_t row) const;
  // Its place among host_rows(); only of one that is.
  std::int32_t host_place(std::int32_t row) const { return place(row).begin; }

 private:
  struct Place {
    std::int32_t begin = 0;  // in draws_ or host_rows_
    std::int32_t num_draws = 0;  // 0: it is in host_rows_
  };
  const Place& place(std::int32_t row) const { return places_[static_cast<std::size_t>(row)]; }
  void add_draws(Sequence* sequence, std::span<const TokenId> eos_token_ids);

  std::vector<Place> places_;  // [logits rows]
  std::vector<Draw> draws_;
  std::vector<std::int32_t> host_rows_;
};

}  // namespace batchmill
