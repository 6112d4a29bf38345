#include "engine/logits_scan.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>

// One binary holds code for several instruction sets. -ffp-contract=off (see CMakeLists.txt) keeps
// their results equal. Sanitizers and other compilers get the plain version.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define BATCHMILL_VECTOR_CLONES \
  __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define BATCHMILL_VECTOR_CLONES
#endif

namespace batchmill {
namespace {

constexpr std::size_t kLanes = 16;
constexpr float kMinExponent = -87.0f;  // e^-87 is the last normal float

// e^x for x ≤ 0: x = n ln 2 + r, |r| ≤ ln 2 / 2, and a polynomial for e^r.
inline __attribute__((always_inline)) float exp_nonpositive(float x) {
  const float clamped = x > kMinExponent ? x : kMinExponent;
  constexpr float kRound = 12582912.0f;  // 1.5 × 2^23: adding it rounds to an integer
  const float n = (clamped * 1.44269504f + kRound) - kRound;
  const float r = (clamped - n * 0.693359375f) + n * 2.12194440e-4f;
  float p = 1.9841270e-4f;
  p = p * r + 1.3888889e-3f;
  p = p * r + 8.3333333e-3f;
  p = p * r + 4.1666667e-2f;
  p = p * r + 1.6666667e-1f;
  p = p * r + 0.5f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  const auto bits = std::bit_cast<std::int32_t>(p) + (static_cast<std::int32_t>(n) << 23);
  return x > kMinExponent ? std::bit_cast<float>(bits) : 0.0f;
}

BATCHMILL_VECTOR_CLONES
bool block_maxima(const float* logits, std::size_t num_blocks, float* maxima) {
  // x − x is 0 for finite x and NaN for all others; −infinity, which is allowed, is lifted first.
  constexpr float kLowest = std::numeric_limits<float>::lowest();
  float trouble[kLanes] = {};
  for (std::size_t block = 0; block < num_blocks; ++block) {
    const float* x = logits + block * kScanBlock;
    float best[kLanes];
    for (std::size_t i = 0; i < kLanes; ++i) best[i] = x[i];
    for (std::size_t j = 0; j < kScanBlock; j += kLanes) {
      for (std::size_t i = 0; i < kLanes; ++i) {
        best[i] = x[j + i] > best[i] ? x[j + i] : best[i];
      }
      for (std::size_t i = 0; i < kLanes; ++i) {
        const float lifted = x[j + i] < kLowest ? kLowest : x[j + i];
        trouble[i] += lifted - lifted;
      }
    }
    for (std::size_t width = kLanes / 2; width > 0; width /= 2) {
      for (std::size_t i = 0; i < width; ++i) {
        best[i] = best[i + width] > best[i] ? best[i + width] : best[i];
      }
    }
    maxima[block] = best[0];
  }
  float sum = 0.0f;
  for (const float lane : trouble) sum += lane;
  return sum == 0.0f;
}

// False if a value is NaN, or none is finite.
BATCHMILL_VECTOR_CLONES
bool largest(const float* values, std::size_t count, float* max) {
  constexpr float kLowest = std::numeric_limits<float>::lowest();
  float best[kLanes];
  float trouble[kLanes] = {};
  for (std::size_t i = 0; i < kLanes; ++i) best[i] = -std::numeric_limits<float>::infinity();
  const std::size_t whole = count / kLanes * kLanes;
  for (std::size_t j = 0; j < whole; j += kLanes) {
    for (std::size_t i = 0; i < kLanes; ++i) {
      const float x = values[j + i];
      best[i] = x > best[i] ? x : best[i];
      const float lifted = x < kLowest ? kLowest : x;
      trouble[i] += lifted - lifted;
    }
  }
  for (std::size_t j = whole; j < count; ++j) {
    const float x = values[j];
    best[0] = x > best[0] ? x : best[0];
    const float lifted = x < kLowest ? kLowest : x;
    trouble[0] += lifted - lifted;
  }
  float sum = 0.0f;
  *max = best[0];
  for (std::size_t i = 0; i < kLanes; ++i) {
    *max = best[i] > *max ? best[i] : *max;
    sum += trouble[i];
  }
  return sum == 0.0f && *max >= kLowest;
}

BATCHMILL_VECTOR_CLONES
double block_weights(const float* logits, std::size_t num_blocks, float max, float scale,
                     float* weights, double* sums) {
  double total = 0.0;
  for (std::size_t block = 0; block < num_blocks; ++block) {
    const float* x = logits + block * kScanBlock;
    float* w = weights + block * kScanBlock;
    std::array<float, kLanes> lanes{};
    for (std::size_t j = 0; j < kScanBlock; j += kLanes) {
      for (std::size_t i = 0; i < kLanes; ++i) {
        w[j + i] = exp_nonpositive((x[j + i] - max) * scale);
        lanes[i] += w[j + i];
      }
    }
    double sum = 0.0;
    for (const float lane : lanes) sum += static_cast<double>(lane);
    sums[block] = sum;
    total += sum;
  }
  return total;
}

BATCHMILL_VECTOR_CLONES
double sum_of_exponentials(const float* logits, std::size_t num_blocks, float max) {
  double total = 0.0;
  for (std::size_t block = 0; block < num_blocks; ++block) {
    const float* x = logits + block * kScanBlock;
    std::array<float, kLanes> lanes{};
    for (std::size_t j = 0; j < kScanBlock; j += kLanes) {
      for (std::size_t i = 0; i < kLanes; ++i) lanes[i] += exp_nonpositive(x[j + i] - max);
    }
    double sum = 0.0;
    for (const float lane : lanes) sum += static_cast<double>(lane);
    total += sum;
  }
  return total;
}

}  // namespace

void scan_blocks(std::span<const float> logits, std::span<float> maxima) {
  const std::size_t whole = logits.size() / kScanBlock;
  bool is_valid = block_maxima(logits.data(), whole, maxima.data());
  if (whole * kScanBlock < logits.size()) {
    float top = logits[whole * kScanBlock];
    for (const float x : logits.subspan(whole * kScanBlock)) {
      top = x > top ? x : top;
      is_valid = is_valid && x <= std::numeric_limits<float>::max();
    }
    maxima[whole] = top;
  }
  if (!is_valid) {
    std::ranges::fill(maxima.first(num_scan_blocks(logits.size())),
                      std::numeric_limits<float>::quiet_NaN());
  }
}

LogitsRange range_of(std::span<const float> maxima) {
  LogitsRange range;
  range.is_valid = largest(maxima.data(), maxima.size(), &range.max);
  return range;
}

LogitsRange scan_maxima(std::span<const float> logits, std::span<float> maxima) {
  const std::span<float> own = maxima.first(num_scan_blocks(logits.size()));
  scan_blocks(logits, own);
  return range_of(own);
}

double exp_weights(std::span<const float> logits, float max, float scale, std::span<float> weights,
                   std::span<double> sums) {
  const std::size_t whole = logits.size() / kScanBlock;
  double total = block_weights(logits.data(), whole, max, scale, weights.data(), sums.data());
  if (whole * kScanBlock < logits.size()) {
    double sum = 0.0;
    for (std::size_t i = whole * kScanBlock; i < logits.size(); ++i) {
      weights[i] = exp_nonpositive((logits[i] - max) * scale);
      sum += static_cast<double>(weights[i]);
    }
    sums[whole] = sum;
    total += sum;
  }
  return total;
}

double log_sum_exp(std::span<const float> logits, float max) {
  const std::size_t whole = logits.size() / kScanBlock;
  double total = sum_of_exponentials(logits.data(), whole, max);
  for (const float x : logits.subspan(whole * kScanBlock)) {
    total += static_cast<double>(exp_nonpositive(x - max));
  }
  return static_cast<double>(max) + std::log(total);
}

}  // namespace batchmill
