// Passes over one row of logits, written so that the compiler makes vector code of them and every
// instruction set gives the same bits: sums go into a fixed number of lanes in a fixed order. Pure
// functions; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace batchmill {

// Logits are summarised in runs of this many.
inline constexpr std::size_t kScanBlock = 64;

inline std::size_t num_scan_blocks(std::size_t n) { return (n + kScanBlock - 1) / kScanBlock; }

struct LogitsRange {
  float max = 0.0f;
  bool is_valid = false;  // no NaN, no +infinity, and at least one finite value
};

// Writes each block's largest logit to `maxima` [num_scan_blocks]; all NaN if any logit is NaN or
// +infinity.
void scan_blocks(std::span<const float> logits, std::span<float> maxima);

// What the maxima of all blocks say.
LogitsRange range_of(std::span<const float> maxima);

// Both.
LogitsRange scan_maxima(std::span<const float> logits, std::span<float> maxima);

// The blocks' maxima of rows of logits, from a product that has just had them in a cache.
struct LogitsScan {
  void resize(std::int32_t num_rows, std::int32_t num_logits) {
    num_row_blocks = num_scan_blocks(static_cast<std::size_t>(num_logits));
    maxima.resize(static_cast<std::size_t>(num_rows) * num_row_blocks);
  }
  std::span<float> row(std::int32_t index) {
    return std::span(maxima).subspan(static_cast<std::size_t>(index) * num_row_blocks,
                                     num_row_blocks);
  }

  std::size_t num_row_blocks = 0;
  std::vector<float> maxima;  // [rows, blocks]
};

// weights[i] = exp((logits[i] − max) × scale), 0 below e⁻⁸⁷; sums [num_scan_blocks]: their sums.
// Returns the sum of all. Relative error of a weight: below 3e-7.
double exp_weights(std::span<const float> logits, float max, float scale, std::span<float> weights,
                   std::span<double> sums);

// log Σ exp(logits[i]), for logits whose maximum is `max`.
double log_sum_exp(std::span<const float> logits, float max);

}  // namespace batchmill
