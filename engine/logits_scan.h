// Passes over one row of logits, written so that the compiler makes vector code of them and every
// instruction set gives the same bits: sums go into a fixed number of lanes in a fixed order. Pure
// functions; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace batchmill {

// Logits are summarised in runs of this many.
inline constexpr std::size_t kScanBlock = 64;

inline std::size_t num_scan_blocks(std::size_t n) { return (n + kScanBlock - 1) / kScanBlock; }

struct LogitsRange {
  float max = 0.0f;
  bool is_valid = false;  // no NaN, no +infinity, and at least one finite value
};

// Writes each block's largest logit to `maxima` [num_scan_blocks].
LogitsRange scan_maxima(std::span<const float> logits, std::span<float> maxima);

// weights[i] = exp((logits[i] − max) × scale), 0 below e⁻⁸⁷; sums [num_scan_blocks]: their sums.
// Returns the sum of all. Relative error of a weight: below 3e-7.
double exp_weights(std::span<const float> logits, float max, float scale, std::span<float> weights,
                   std::span<double> sums);

// log Σ exp(logits[i]), for logits whose maximum is `max`.
double log_sum_exp(std::span<const float> logits, float max);

}  // namespace batchmill
