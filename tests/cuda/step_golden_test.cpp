// The CPU backend gives the numbers that GPU machines are held to.
#include "tests/cuda/step_golden.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <string>

#include "engine/cpu/cpu_runner.h"
#include "tests/cuda/step_model.h"

namespace batchmill::testing {
namespace {

constexpr float kTolerance = 2e-3f;  // sums are in another order on other processors

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
    std::vector<float> logits;
    const auto results = run_golden(model, 1000, [&](const Batch& batch) -> std::vector<float>& {
      logits.resize(batch.logits_rows.size() * static_cast<std::size_t>(config.vocab_size));
      runner->forward(batch, logits);
      return logits;
    });
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

}  // namespace
}  // namespace batchmill::testing
