// Chooses the next token from a row of logits. A pure function of what it is given: the object only
// keeps scratch memory. One thread at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "engine/draw.h"
#include "engine/request.h"
#include "engine/types.h"

namespace batchmill {

class Sampler {
 public:
  explicit Sampler(std::int32_t vocab_size);

  // The order of things, as in vLLM: logit bias and min_tokens, then penalties (repetition,
  // frequency, presence), then greedy; or temperature, min-p, top-k, top-p, a draw. Equal logits:
  // the lower id first. A NaN, +infinity or nothing finite left: no token. `maxima`: the blocks'
  // (logits_scan.h) where they are known, else empty.
  std::optional<TokenId> sample(std::span<const float> logits, const SamplingContext& context,
                                std::span<const float> maxima = {});

  // Natural log-probability of `token` and of the `num_top` best tokens, from unmodified logits.
  // Nothing if they hold a NaN, +infinity or nothing finite.
  std::optional<PositionLogprobs> logprobs(std::span<const float> logits, TokenId token,
                                           std::int32_t num_top);

 private:
  struct Candidate {
    TokenId token;
    float value;
  };

  bool changes_logits(const SamplingContext& context) const;
  void change_logits(std::span<const float> logits, const SamplingContext& context);
  void suppress(std::span<const TokenId> ids);
  void penalize(const SamplingContext& context);
  // Fills candidates_ with the k largest logits that are at least `floor`, largest first. Uses
  // maxima_.
  void select_top(std::span<const float> logits, std::int32_t k, float floor);
  TokenId draw_from_all(std::span<const float> logits, float max, float scale, double uniform);
  void cut_candidates_to_top_p(float max, float scale, float p);
  void select_top_p(std::span<const float> logits, float max, float scale, float floor, float p);
  TokenId draw_from_candidates(float max, float scale, double uniform) const;

  std::vector<float> maxima_;  // [scan blocks]
  std::vector<float> changed_;  // [vocab] logits after bias and penalties
  std::vector<float> weights_;  // [vocab]
  std::vector<double> sums_;  // [scan blocks]
  std::vector<std::int32_t> counts_;  // [vocab] zero between calls
  std::vector<Candidate> candidates_;
  std::vector<Candidate> boundary_;
};

}  // namespace batchmill
