// What the choice of a token depends on besides its logits. Plain values of the caller's, who owns
// what they point to.
#pragma once

#include <cstdint>
#include <span>

#include "engine/sampling_params.h"
#include "engine/types.h"

namespace batchmill {

// Everything besides the logits that a draw depends on.
struct SamplingContext {
  const SamplingParams* params = nullptr;
  std::span<const TokenId> eos_token_ids;
  std::span<const TokenId> prompt;
  std::span<const TokenId> generated;  // the draw's position is their number
  std::int32_t choice = 0;  // index of the choice in its line
};

// A token that a device draws from logits of the step.
struct Draw {
  SamplingContext context;
  std::int32_t logits_row = 0;  // index into Batch::logits_rows
  TokenId token = kNoToken;  // the answer; stays so where the logits leave none to choose
};

}  // namespace batchmill
