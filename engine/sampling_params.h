// How a request's tokens are chosen and when its choices end. Plain values, validated by the
// caller.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/types.h"

namespace batchmill {

struct SamplingParams {
  float temperature = 1.0f;  // 0: greedy
  float top_p = 1.0f;  // (0, 1]; 1: off
  std::int32_t top_k = 0;  // 0: off
  float min_p = 0.0f;  // [0, 1]; 0: off
  float presence_penalty = 0.0f;  // [-2, 2], over generated tokens
  float frequency_penalty = 0.0f;  // [-2, 2], over generated tokens
  float repetition_penalty = 1.0f;  // > 0, over prompt and generated tokens; 1: off
  std::vector<std::pair<TokenId, float>> logit_bias;

  // The whole randomness of a draw is (seed, choice index, position).
  std::uint64_t seed = 0;

  std::int32_t max_tokens = 16;  // per choice, already lowered to what the context leaves
  std::int32_t min_tokens = 0;  // no end-of-sequence or stop token before these many
  bool ignore_eos = false;
  std::vector<TokenId> stop_token_ids;  // besides the model's own end-of-sequence ids
  std::vector<std::string> stop;  // stop strings, never empty ones; cut from the text

  // Log-probabilities (natural logarithm, of the unmodified logits): absent: none; k: of the chosen
  // token and of the k best (0 ≤ k ≤ 20).
  std::optional<std::int32_t> logprobs;
  bool prompt_logprobs = false;  // echo with logprobs; bypasses prefix reuse
};

}  // namespace batchmill
