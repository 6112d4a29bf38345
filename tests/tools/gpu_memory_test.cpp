// How a GPU's free memory is divided; without a GPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "tools/gpu_runner.h"

namespace batchmill {
namespace {

using ::testing::HasSubstr;

class GpuMemoryTest : public ::testing::Test {
 protected:
  GpuMemoryTest() {
    config_ = Model::open(BATCHMILL_TEST_DATA "/models/llama3/model-q4_0.gguf")->config();
    plan_ = plan_gpu_memory(config_, options_, std::int64_t{64} << 30, false);
  }

  // With room for so many blocks of the KV cache.
  std::int64_t free_bytes(std::int64_t blocks) const {
    return plan_.weight_bytes + plan_.step_bytes + blocks * plan_.block_bytes;
  }
  std::string refusal(std::int64_t bytes) {
    try {
      plan_gpu_memory(config_, options_, bytes, false);
    } catch (const std::runtime_error& error) {
      return error.what();
    }
    return "accepted";
  }

  ModelConfig config_;
  GpuOptions options_;
  GpuMemoryPlan plan_;
};

TEST_F(GpuMemoryTest, TheCacheHasAtMost64Contexts) {
  EXPECT_EQ(std::int64_t{plan_.num_blocks} * options_.block_size_tokens,
            std::int64_t{64} * config_.max_context_tokens);
}

TEST_F(GpuMemoryTest, TheCacheHasWhatWeightsAndStepsLeave) {
  EXPECT_EQ(plan_gpu_memory(config_, options_, free_bytes(10), false).num_blocks, 10);
  EXPECT_EQ(
      plan_gpu_memory(config_, options_, free_bytes(10) - plan_.weight_bytes, true).num_blocks, 10);
  options_.sharers = 2;
  EXPECT_EQ(plan_gpu_memory(config_, options_, free_bytes(10), false).num_blocks, 5);
  options_.kv_cache_bytes = 3 * plan_.block_bytes;
  EXPECT_EQ(plan_gpu_memory(config_, options_, free_bytes(10), false).num_blocks, 3);
}

TEST_F(GpuMemoryTest, LargerStepsTakeMore) {
  options_.max_num_batched_tokens *= 2;
  const GpuMemoryPlan larger = plan_gpu_memory(config_, options_, std::int64_t{64} << 30, false);
  EXPECT_GT(larger.step_bytes, plan_.step_bytes);
}

TEST_F(GpuMemoryTest, SaysWhatIsMissing) {
  EXPECT_EQ(refusal(free_bytes(1)), "accepted");
  EXPECT_THAT(refusal(free_bytes(1) - 1), HasSubstr(" MiB are free, and the model needs 1 MiB for "
                                                    "weights, "));
  options_.kv_cache_bytes = 11 * plan_.block_bytes;
  EXPECT_THAT(refusal(free_bytes(10)),
              HasSubstr("kv_cache_bytes can be at most " + std::to_string(10 * plan_.block_bytes)));
}

}  // namespace
}  // namespace batchmill
