#include "engine/sampler.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <utility>

#include "engine/logits_scan.h"
#include "engine/philox.h"

namespace batchmill {
namespace {

// Probabilities are sorted into buckets by their logarithm, for finding where top-p ends.
constexpr std::size_t kNumBuckets = 256;
constexpr float kBucketsPerNat = 8.0f;

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

// A penalty may be so small or large that a logit would leave the range of floats.
constexpr float kMaxLogit = 1e30f;

// Best first: the larger value, then the lower id.
constexpr auto kBetter = [](const auto& a, const auto& b) {
  return a.value != b.value ? a.value > b.value : a.token < b.token;
};

std::size_t at(TokenId token) { return static_cast<std::size_t>(token); }

TokenId first_of_value(std::span<const float> logits, std::span<const float> maxima, float value) {
  const auto block = static_cast<std::size_t>(std::ranges::find(maxima, value) - maxima.begin());
  std::size_t i = block * kScanBlock;
  while (logits[i] != value) ++i;
  return static_cast<TokenId>(i);
}

}  // namespace

Sampler::Sampler(std::int32_t vocab_size)
    : maxima_(num_scan_blocks(at(vocab_size))),
      changed_(at(vocab_size)),
      weights_(at(vocab_size)),
      sums_(maxima_.size()),
      counts_(at(vocab_size), 0) {}

std::optional<TokenId> Sampler::sample(std::span<const float> logits,
                                       const SamplingContext& context,
                                       std::span<const float> maxima) {
  const SamplingParams& params = *context.params;
  if (maxima.empty()) {
    scan_blocks(logits, maxima_);
  } else {
    std::ranges::copy(maxima, maxima_.begin());
  }
  LogitsRange range = range_of(maxima_);
  if (!range.is_valid) return std::nullopt;
  if (changes_logits(context)) {
    change_logits(logits, context);
    logits = changed_;
    range = scan_maxima(logits, maxima_);
    if (!range.is_valid) return std::nullopt;
  }
  const float scale = 1.0f / params.temperature;
  // A temperature that no float can divide by is as good as greedy.
  if (params.temperature <= 0.0f || !std::isfinite(scale) || params.top_k == 1) {
    return first_of_value(logits, maxima_, range.max);
  }

  const double uniform = philox_uniform(params.seed, static_cast<std::uint32_t>(context.choice),
                                        static_cast<std::uint32_t>(context.generated.size()));
  const float floor = params.min_p > 0.0f ? range.max + std::log(params.min_p) * params.temperature
                                          : kMinusInfinity;
  const bool has_top_k = params.top_k > 0 && at(params.top_k) < logits.size();
  if (!has_top_k && params.top_p >= 1.0f && params.min_p <= 0.0f) {
    return draw_from_all(logits, range.max, scale, uniform);
  }
  if (has_top_k) {
    select_top(logits, params.top_k, floor);
    if (params.top_p < 1.0f) cut_candidates_to_top_p(range.max, scale, params.top_p);
  } else {
    select_top_p(logits, range.max, scale, floor, params.top_p);
  }
  return draw_from_candidates(range.max, scale, uniform);
}

bool Sampler::changes_logits(const SamplingContext& context) const {
  const SamplingParams& params = *context.params;
  return !params.logit_bias.empty() ||
         static_cast<std::int32_t>(context.generated.size()) < params.min_tokens ||
         params.repetition_penalty != 1.0f || params.presence_penalty != 0.0f ||
         params.frequency_penalty != 0.0f;
}

void Sampler::suppress(std::span<const TokenId> ids) {
  for (const TokenId id : ids) {
    if (id >= 0 && at(id) < changed_.size()) changed_[at(id)] = kMinusInfinity;
  }
}

void Sampler::change_logits(std::span<const float> logits, const SamplingContext& context) {
  const SamplingParams& params = *context.params;
  std::ranges::copy(logits, changed_.begin());
  for (const auto& [id, bias] : params.logit_bias) {
    if (id >= 0 && at(id) < changed_.size()) changed_[at(id)] += bias;
  }
  if (static_cast<std::int32_t>(context.generated.size()) < params.min_tokens) {
    suppress(context.eos_token_ids);
    suppress(params.stop_token_ids);
  }
  penalize(context);
}

void Sampler::penalize(const SamplingContext& context) {
  const SamplingParams& params = *context.params;
  if (params.repetition_penalty != 1.0f) {
    const auto apply_once = [&](std::span<const TokenId> ids) {
      for (const TokenId id : ids) {
        if (counts_[at(id)]++ > 0) continue;
        float& x = changed_[at(id)];
        if (x == kMinusInfinity) continue;  // suppressed
        x = x > 0.0f ? x / params.repetition_penalty : x * params.repetition_penalty;
        x = std::clamp(x, -kMaxLogit, kMaxLogit);
      }
    };
    apply_once(context.prompt);
    apply_once(context.generated);
    for (const TokenId id : context.prompt) counts_[at(id)] = 0;
    for (const TokenId id : context.generated) counts_[at(id)] = 0;
  }
  if (params.presence_penalty != 0.0f || params.frequency_penalty != 0.0f) {
    for (const TokenId id : context.generated) ++counts_[at(id)];
    for (const TokenId id : context.generated) {
      const int count = std::exchange(counts_[at(id)], 0);
      if (count == 0) continue;  // handled at an earlier place
      changed_[at(id)] -=
          params.frequency_penalty * static_cast<float>(count) + params.presence_penalty;
    }
  }
}

void Sampler::select_top(std::span<const float> logits, std::int32_t k, float floor) {
  // k blocks whose maxima are at least t hold k logits that are at least t: the k-th largest
  // maximum is a bound that leaves few candidates.
  const std::size_t wanted = at(k);
  if (wanted < maxima_.size()) {
    auto& bounds = weights_;
    std::ranges::copy(maxima_, bounds.begin());
    std::nth_element(bounds.begin(), bounds.begin() + (k - 1),
                     bounds.begin() + static_cast<std::ptrdiff_t>(maxima_.size()),
                     std::greater<>());
    floor = std::max(floor, bounds[wanted - 1]);
  }
  candidates_.clear();
  for (std::size_t block = 0; block < maxima_.size(); ++block) {
    if (maxima_[block] < floor) continue;
    const std::size_t end = std::min(logits.size(), (block + 1) * kScanBlock);
    for (std::size_t i = block * kScanBlock; i < end; ++i) {
      if (logits[i] >= floor) candidates_.push_back({static_cast<TokenId>(i), logits[i]});
    }
  }
  if (candidates_.size() > wanted) {
    std::nth_element(candidates_.begin(), candidates_.begin() + k, candidates_.end(), kBetter);
    candidates_.resize(wanted);
  }
  std::ranges::sort(candidates_, kBetter);
}

TokenId Sampler::draw_from_all(std::span<const float> logits, float max, float scale,
                               double uniform) {
  const double total = exp_weights(logits, max, scale, weights_, sums_);
  double left = uniform * total;
  std::size_t block = 0;
  while (block + 1 < sums_.size() && left >= sums_[block]) left -= sums_[block++];
  // Rounding may leave a rest after the last weight: the last token that has one is drawn then.
  TokenId drawn = kNoToken;
  const std::size_t end = std::min(logits.size(), (block + 1) * kScanBlock);
  for (std::size_t i = block * kScanBlock; i < end && left >= 0.0; ++i) {
    if (weights_[i] <= 0.0f) continue;
    drawn = static_cast<TokenId>(i);
    left -= static_cast<double>(weights_[i]);
  }
  return drawn != kNoToken ? drawn : first_of_value(logits, maxima_, max);
}

// Leaves in candidates_ the smallest set of the best among them whose probability reaches p.
void Sampler::cut_candidates_to_top_p(float max, float scale, float p) {
  const auto weight = [&](const Candidate& c) {
    return std::exp(static_cast<double>((c.value - max) * scale));
  };
  double total = 0.0;
  for (const Candidate& c : candidates_) total += weight(c);
  const double wanted = static_cast<double>(p) * total;
  double mass = 0.0;
  std::size_t kept = 0;
  while (kept < candidates_.size() && (kept == 0 || mass < wanted)) {
    mass += weight(candidates_[kept++]);
  }
  candidates_.resize(kept);
}

// Fills candidates_ with the smallest set of the best logits, none below `floor`, whose probability
// reaches p. Only the bucket of logits where the set ends is sorted.
void Sampler::select_top_p(std::span<const float> logits, float max, float scale, float floor,
                           float p) {
  double total = exp_weights(logits, max, scale, weights_, sums_);
  const auto bucket_of = [&](float x) {
    const float depth = (max - x) * scale * kBucketsPerNat;
    return depth < static_cast<float>(kNumBuckets - 1) ? static_cast<std::size_t>(depth)
                                                       : kNumBuckets - 1;
  };
  std::array<double, kNumBuckets> mass{};
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (logits[i] < floor) weights_[i] = 0.0f;
    mass[bucket_of(logits[i])] += static_cast<double>(weights_[i]);
  }
  if (floor > kMinusInfinity) total = std::accumulate(mass.begin(), mass.end(), 0.0);

  const double wanted = static_cast<double>(p) * total;
  double found = 0.0;
  std::size_t last = 0;
  while (last + 1 < kNumBuckets && found + mass[last] < wanted) found += mass[last++];
  candidates_.clear();
  boundary_.clear();
  for (std::size_t block = 0; block < maxima_.size(); ++block) {
    if (bucket_of(maxima_[block]) > last) continue;
    const std::size_t end = std::min(logits.size(), (block + 1) * kScanBlock);
    for (std::size_t i = block * kScanBlock; i < end; ++i) {
      if (weights_[i] <= 0.0f) continue;
      const std::size_t bucket = bucket_of(logits[i]);
      if (bucket < last) candidates_.push_back({static_cast<TokenId>(i), logits[i]});
      if (bucket == last) boundary_.push_back({static_cast<TokenId>(i), logits[i]});
    }
  }
  std::ranges::sort(boundary_, kBetter);
  for (const Candidate& c : boundary_) {
    if (found >= wanted && !candidates_.empty()) break;
    candidates_.push_back(c);
    found += static_cast<double>(weights_[at(c.token)]);
  }
}

TokenId Sampler::draw_from_candidates(float max, float scale, double uniform) const {
  const auto weight = [&](const Candidate& c) {
    return std::exp(static_cast<double>((c.value - max) * scale));
  };
  double total = 0.0;
  for (const Candidate& c : candidates_) total += weight(c);
  double left = uniform * total;
  TokenId drawn = candidates_.front().token;
  for (const Candidate& c : candidates_) {
    const double w = weight(c);
    if (w <= 0.0) break;
    drawn = c.token;
    if ((left -= w) < 0.0) break;
  }
  return drawn;
}

std::optional<PositionLogprobs> Sampler::logprobs(std::span<const float> logits, TokenId token,
                                                  std::int32_t num_top) {
  const LogitsRange range = scan_maxima(logits, maxima_);
  if (!range.is_valid) return std::nullopt;
  const double normalizer = log_sum_exp(logits, range.max);
  const auto logprob = [&](float x) {
    return static_cast<float>(static_cast<double>(x) - normalizer);
  };
  PositionLogprobs result;
  result.chosen = {token, logprob(logits[at(token)])};
  if (num_top <= 0) return result;
  select_top(logits, std::min(num_top, static_cast<std::int32_t>(logits.size())), kMinusInfinity);
  result.top.reserve(candidates_.size());
  for (const Candidate& c : candidates_) result.top.push_back({c.token, logprob(c.value)});
  return result;
}

}  // namespace batchmill
