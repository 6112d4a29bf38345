#include "engine/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace batchmill {
namespace {

// A wave that turns often within the original context is kept, one that hardly turns is stretched
// by the factor; between, both are blended.
double llama3_frequency(const RopeConfig& rope, double frequency) {
  const double wavelength = 2.0 * std::numbers::pi / frequency;
  const double turns = rope.original_context_tokens / wavelength;
  if (turns < rope.low_freq_factor) return frequency / rope.factor;
  if (turns > rope.high_freq_factor) return frequency;
  const double kept =
      (turns - rope.low_freq_factor) / (double{rope.high_freq_factor} - rope.low_freq_factor);
  return (1.0 - kept) * frequency / rope.factor + kept * frequency;
}

// The (fractional) pair of dimensions whose wave turns `turns` times within the original context.
double yarn_dimension(const RopeConfig& rope, std::int32_t dim, double turns) {
  return dim * std::log(rope.original_context_tokens / (turns * 2.0 * std::numbers::pi)) /
         (2.0 * std::log(double{rope.theta}));
}

void scale_yarn(const RopeConfig& rope, std::int32_t dim, std::vector<double>* frequencies) {
  double low = yarn_dimension(rope, dim, rope.beta_fast);
  double high = yarn_dimension(rope, dim, rope.beta_slow);
  if (rope.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, dim - 1.0);
  if (low == high) high += 0.001;
  for (std::size_t i = 0; i < frequencies->size(); ++i) {
    const double stretched = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    double& frequency = (*frequencies)[i];
    frequency = frequency / rope.factor * stretched + frequency * (1.0 - stretched);
  }
}

}  // namespace

std::vector<float> rope_frequencies(const RopeConfig& rope, std::int32_t dim) {
  std::vector<double> frequencies(static_cast<std::size_t>(dim / 2));
  for (std::size_t i = 0; i < frequencies.size(); ++i) {
    frequencies[i] = std::pow(double{rope.theta}, -2.0 * static_cast<double>(i) / dim);
  }
  switch (rope.scaling) {
    case RopeScaling::kLinear:
      for (double& frequency : frequencies) frequency /= rope.factor;
      break;
    case RopeScaling::kLlama3:
      for (double& frequency : frequencies) frequency = llama3_frequency(rope, frequency);
      break;
    case RopeScaling::kYarn:
      scale_yarn(rope, dim, &frequencies);
      break;
    case RopeScaling::kNone:
    case RopeScaling::kDynamic:
      break;
  }
  return {frequencies.begin(), frequencies.end()};
}

float rope_base_growth(const RopeConfig& rope, std::int32_t position) {
  if (rope.scaling != RopeScaling::kDynamic) return 1.0f;
  const double stretch = (position + 1.0) / rope.original_context_tokens;
  if (stretch <= 1.0) return 1.0f;
  return static_cast<float>(rope.factor * stretch - (rope.factor - 1.0));
}

float yarn_magnitude(float factor, float mscale) {
  if (factor <= 1.0f) return 1.0f;
  return 0.1f * mscale * std::log(factor) + 1.0f;
}

}  // namespace batchmill
