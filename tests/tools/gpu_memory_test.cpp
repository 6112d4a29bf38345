// How a GPU's free memory is divided; without a GPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <utility>
#include <vector>

#include "cuda/attention_shapes.h"
#include "cuda/model_limits.h"
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
  options_.kv_cache_bytes = 3 * plan_.block_bytes;
  EXPECT_EQ(plan_gpu_memory(config_, options_, free_bytes(10), false).num_blocks, 3);
}

TEST_F(GpuMemoryTest, WhatOtherModelsNeedIsKeptForThem) {
  const std::int64_t block = plan_.block_bytes;
  const auto blocks_of = [&](std::vector<GpuClaim> others) {
    options_.others = std::move(others);
    return plan_gpu_memory(config_, options_, free_bytes(12), false).num_blocks;
  };
  const std::int64_t much = std::int64_t{1} << 40;
  EXPECT_EQ(blocks_of({{2 * block, 0}}), 10);  // weights and steps
  EXPECT_EQ(blocks_of({{0, much}}), 6);  // the rest is shared …
  EXPECT_EQ(blocks_of({{0, much}, {0, much}}), 4);
  EXPECT_EQ(blocks_of({{0, 2 * block}}), 10);  // … but nobody gets more than it can use
  EXPECT_EQ(blocks_of({{0, much}, {block, block}}), 5);
  EXPECT_EQ(blocks_of({{4 * block, 2 * block}, {0, much}}), 3);
  options_.others = {{12 * block, 0}};
  EXPECT_THAT(refusal(free_bytes(12)),
              HasSubstr(" MiB are free, other models of the device need "));
}

TEST_F(GpuMemoryTest, TwoModelsDivideADeviceEvenlyWhicheverIsLoadedFirst) {
  // The other one as long as it is not loaded; afterwards its steps are still to come.
  const GpuClaim whole = gpu_claim(config_, options_);
  const GpuClaim loaded = loaded_gpu_claim(config_, options_);
  const std::int64_t free = 2 * (plan_.weight_bytes + plan_.step_bytes) + 20 * plan_.block_bytes;
  options_.others = {whole};
  const std::int64_t left_by_first = free - plan_.weight_bytes - 10 * plan_.block_bytes;
  EXPECT_EQ(plan_gpu_memory(config_, options_, free, false).num_blocks, 10);
  EXPECT_EQ(plan_gpu_memory(config_, options_, free - plan_.weight_bytes, true).num_blocks, 10);
  options_.others = {loaded};
  EXPECT_EQ(plan_gpu_memory(config_, options_, left_by_first, false).num_blocks, 10);
  // With a size that is configured as well.
  options_.others.clear();
  options_.kv_cache_bytes = 10 * plan_.block_bytes;
  options_.others = {gpu_claim(config_, options_)};
  EXPECT_EQ(plan_gpu_memory(config_, options_, free, false).num_blocks, 10);
  EXPECT_THAT(refusal(free - 2), HasSubstr("kv_cache_bytes can be at most " +
                                           std::to_string(10 * plan_.block_bytes - 1)));
}

TEST_F(GpuMemoryTest, MoreTokensFitInBytes) {
  const std::int64_t rows = std::int64_t{2} * config_.num_layers * config_.num_kv_heads;
  EXPECT_EQ(plan_.block_bytes, rows * 2 * config_.head_dim * options_.block_size_tokens);
  for (const DType dtype : {DType::kI8, DType::kF8}) {
    options_.kv_dtype = dtype;
    const GpuMemoryPlan plan = plan_gpu_memory(config_, options_, free_bytes(10), false);
    // A scale beside a head's row.
    EXPECT_EQ(plan.block_bytes, rows * (config_.head_dim + 4) * options_.block_size_tokens);
    EXPECT_EQ(plan.num_blocks, 10 * plan_.block_bytes / plan.block_bytes);
  }
  // No more than the backend can number.
  config_.num_layers = 1;
  options_.kv_cache_bytes = std::int64_t{100} << 30;
  const GpuMemoryPlan most = plan_gpu_memory(config_, options_, std::int64_t{200} << 30, false);
  const std::int64_t bytes = most.num_blocks * most.block_bytes;
  EXPECT_LE(bytes, kLargestByteLayer);
  EXPECT_GT(bytes, kLargestByteLayer - most.block_bytes);
}

TEST_F(GpuMemoryTest, LargerStepsTakeMore) {
  options_.max_num_batched_tokens *= 2;
  const GpuMemoryPlan larger = plan_gpu_memory(config_, options_, std::int64_t{64} << 30, false);
  EXPECT_GT(larger.step_bytes, plan_.step_bytes);
}

std::string refusal_of(const ModelConfig& config) {
  try {
    check_gpu_model(config);
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "accepted";
}

TEST(GpuModelTest, WhatTheBackendCannotRunIsRefusedBeforeItIsLoaded) {
  const auto model = Model::open(BATCHMILL_TEST_DATA "/models/llama3/model-q4_0.gguf");
  const auto with = [&](const auto& change) {
    ModelConfig config = model->config();
    change(&config);
    return refusal_of(config);
  };
  EXPECT_EQ(with([](ModelConfig*) {}), "accepted");
  for (const std::int32_t dim : {80, 96, 100, 120, 512}) {
    EXPECT_THAT(with([&](ModelConfig* config) { config->head_dim = dim; }),
                HasSubstr("heads of " + std::to_string(dim) + " (16, 32, 64, 128 or 256)"));
  }
  EXPECT_EQ(with([](ModelConfig* config) { config->head_dim = 256; }), "accepted");
  EXPECT_THAT(with([](ModelConfig* config) {
                config->num_heads = 129;
                config->num_kv_heads = 1;
              }),
              HasSubstr("more than 128 query heads to a kv head (129)"));
  EXPECT_EQ(with([](ModelConfig* config) { config->hidden_size = 16384; }), "accepted");
  EXPECT_THAT(with([](ModelConfig* config) { config->hidden_size = 16400; }),
              HasSubstr("hidden sizes above 16384 (16400)"));
  EXPECT_THAT(with([](ModelConfig* config) { config->intermediate_size = 100; }),
              HasSubstr("no multiple of 16 ("));
  check_gpu_blocks(32, DType::kBF16);
  EXPECT_THROW(check_gpu_blocks(48, DType::kBF16), std::runtime_error);
  check_gpu_blocks(2, DType::kBF16);
  EXPECT_THROW(check_gpu_blocks(2, DType::kI8), std::runtime_error);
}

// Shared memory of a block is 99 KiB on GPUs of compute capabilities 8.6, 8.9 and 12.0, 163 on
// those of 8.0.
TEST(GpuModelTest, HeadsThatNeedMoreSharedMemoryThanThereIsAreRefused) {
  ModelConfig config = Model::open(BATCHMILL_TEST_DATA "/models/llama3/model-q4_0.gguf")->config();
  CudaDeviceFacts device;
  device.name = "L4";
  device.shared_bytes = kSmallSharedBytes;
  config.head_dim = 128;
  check_gpu_device(config, DType::kBF16, device);
  config.head_dim = 256;
  try {
    check_gpu_device(config, DType::kBF16, device);
    ADD_FAILURE() << "accepted";
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(),
                 "attention over heads of 256 in bf16 needs 145 KiB of shared memory, of which L4 "
                 "gives a block at most 99");
  }
  device.shared_bytes = kMediumSharedBytes;
  check_gpu_device(config, DType::kBF16, device);
}

// In the emulated device, whose second allocation finds nothing left.
TEST(GpuRunnerTest, SaysWhatWasFreeWhenOthersTakeIt) {
  const auto program = std::filesystem::read_symlink("/proc/self/exe");
  if (!std::filesystem::exists(program.parent_path() / kEmulatedPluginFile)) {
    GTEST_SKIP() << "skipped: no libboost-context-dev";
  }
  const auto model = Model::open(BATCHMILL_TEST_DATA "/models/llama3/model-q4_0.gguf");
  setenv("BATCHMILL_EMULATED_TAKEN", "0:2", 1);
  const CudaPlugin plugin(kEmulatedPluginFile);
  ASSERT_EQ(plugin.num_devices(), 1) << plugin.reason();
  try {
    make_gpu_runner(plugin, *model, {});
    ADD_FAILURE() << "there was memory";
  } catch (const std::runtime_error& error) {
    EXPECT_THAT(error.what(), HasSubstr("its weights needed 1 MiB, 1,024 MiB were free before"));
  }
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
