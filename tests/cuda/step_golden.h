// What the CPU backend in float32 makes of models with random weights, as numbers for machines that
// have no CPU backend. step_golden_test.cpp holds the numbers to it.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "engine/batch.h"
#include "tests/cuda/random_model.h"

namespace batchmill::testing {

inline constexpr std::size_t kGoldenSequences = 4;
inline constexpr std::size_t kGoldenTokens = 8;
inline constexpr std::int32_t kGoldenBlocks = 64;
inline constexpr std::int32_t kGoldenContextTokens = 512;

struct GoldenToken {
  TokenId token;  // of the largest logit
  float logit;
  float margin;  // to the second largest
};

struct GoldenModel {
  ModelShape shape;
  std::array<std::array<GoldenToken, kGoldenTokens>, kGoldenSequences> sequences;
};

std::span<const GoldenModel> golden_models();

// How far keys and values in bytes take a golden logit, relative to 1 + |logit|, at most, if all
// else is float32.
inline constexpr float kInt8Cost = 0.009f;
inline constexpr float kFp8Cost = 0.045f;

// Beside a GoldenToken, what a runner had there.
struct StepResult {
  GoldenToken best;
  float golden_logit;  // its logit of the golden token
};

// Runs prompts with at most `chunk` rows of each in a step, then token by token. All tokens are
// given beforehand, so that no result depends on another. `step` returns the logits of a batch's
// rows.
using StepRunner = std::function<std::vector<float>&(const Batch& batch)>;
std::array<std::array<StepResult, kGoldenTokens>, kGoldenSequences> run_golden(
    const GoldenModel& model, std::int32_t chunk, const StepRunner& step);

}  // namespace batchmill::testing
