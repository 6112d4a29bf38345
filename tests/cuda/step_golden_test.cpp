// The CPU backend gives the numbers that GPU machines are held to.
#include "tests/cuda/step_golden.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "engine/cpu/cpu_runner.h"
#include "tests/cuda/rounded_cache.h"
#include "tests/cuda/step_model.h"

namespace batchmill::testing {
namespace {

constexpr float kTolerance = 2e-3f;  // sums are in another order on other processors

std::array<std::array<StepResult, kGoldenTokens>, kGoldenSequences> run_on_cpu(
    const GoldenModel& model, ModelRunner* runner) {
  std::vector<float> logits;
  return run_golden(model, 1000, [&](const Batch& batch) -> std::vector<float>& {
    logits.resize(batch.logits_rows.size() * static_cast<std::size_t>(model.shape.vocab));
    runner->forward(batch, logits);
    return logits;
  });
}

TEST(StepGoldenTest, HoldsWhatTheCpuBackendComputes) {
  for (const GoldenModel& model : golden_models()) {
    SCOPED_TRACE(model.shape.name);
    const ModelConfig config = config_of(model.shape, kGoldenContextTokens);
    CpuOptions options;
    options.dtype = CpuDType::kF32;
    options.kv_dtype = CpuDType::kF32;
    options.block_size_tokens = kStepBlockTokens;
    options.num_blocks = kGoldenBlocks;
    options.threads = 1;
    const auto runner = make_cpu_runner(RandomTensors(config), config, options);
    const auto results = run_on_cpu(model, runner.get());
    std::string table;  // as it should be
    for (std::size_t s = 0; s < kGoldenSequences; ++s) {
      table += "{{";
      for (std::size_t t = 0; t < kGoldenTokens; ++t) {
        const GoldenToken& golden = model.sequences[s][t];
        const GoldenToken& best = results[s][t].best;
        char entry[64];
        std::snprintf(entry, sizeof(entry), "{%d, %.4ff, %.4ff}, ", best.token, best.logit,
                      best.margin);
        table += entry;
        EXPECT_TRUE(best.token == golden.token || golden.margin < kTolerance) << s << " " << t;
        EXPECT_NEAR(best.logit, golden.logit, kTolerance) << s << " " << t;
        EXPECT_NEAR(best.margin, golden.margin, kTolerance) << s << " " << t;
      }
      table += "}},\n";
    }
    if (HasFailure()) std::printf("%s", table.c_str());
  }
}

TEST(StepGoldenTest, HoldsWhatCachesInBytesCost) {
  for (const auto& [kv, cost] : {std::pair(DType::kI8, kInt8Cost), {DType::kF8, kFp8Cost}}) {
    float largest = 0.0f;
    for (const GoldenModel& model : golden_models()) {
      const ModelConfig config = config_of(model.shape, kGoldenContextTokens);
      const auto runner = make_rounded_runner(RandomTensors(config), config, kv, kGoldenBlocks);
      const auto results = run_on_cpu(model, runner.get());
      for (std::size_t s = 0; s < kGoldenSequences; ++s) {
        for (std::size_t t = 0; t < kGoldenTokens; ++t) {
          const float golden = model.sequences[s][t].logit;
          const float error = std::abs(results[s][t].golden_logit - golden);
          largest = std::max(largest, error / (1.0f + std::abs(golden)));
        }
      }
    }
    std::printf("%s: %.4f\n", dtype_name(kv), largest);
    EXPECT_LE(largest, cost) << dtype_name(kv);
    EXPECT_GE(largest, 0.8f * cost) << dtype_name(kv);
  }
}

}  // namespace
}  // namespace batchmill::testing
