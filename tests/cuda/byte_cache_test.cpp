// KV caches in int8 and FP8 on emulated threads: how far they take a model's logits from float32.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "cuda/cuda_backend.h"
#include "engine/model_files.h"
#include "engine/transformer.h"
#include "engine/weights.h"
#include "tests/cuda/rounded_cache.h"
#include "tests/engine/scripted_sequences.h"

namespace batchmill {
namespace {

constexpr std::int32_t kBlocks = 64;
constexpr std::int32_t kBlockTokens = 16;
constexpr std::int32_t kDecodes = 12;

// From the logits in float32, in their standard deviations.
struct Distance {
  double rms = 0;
  double largest = 0;
};

class ByteCacheTest : public ::testing::TestWithParam<std::string> {
 protected:
  using Rows = std::vector<std::vector<float>>;

  ByteCacheTest()
      : model_(read_model_folder(std::string(BATCHMILL_TEST_DATA) + "/models/" + GetParam())) {
    std::mt19937 random(9);
    for (const std::size_t length : {1u, 17u, 50u, 120u}) {
      std::vector<TokenId> tokens(length + kDecodes);
      for (TokenId& token : tokens) token = static_cast<TokenId>(3 + random() % 310);
      sequences_.push_back(std::move(tokens));
    }
    plain_ = run_rounded(DType::kF32);
  }

  // Logits of all tokens: of prompts, the long ones in pieces, then of one token of each after
  // another. All tokens are given beforehand, so that no difference leads to another.
  Rows run(ModelRunner* runner) const {
    testing::ScriptedSequences scripted(runner, 5);
    for (const std::vector<TokenId>& tokens : sequences_) scripted.add(tokens);
    Rows all;
    const auto step = [&](const std::vector<std::int32_t>& counts) {
      for (std::vector<float>& row : scripted.step(counts)) all.push_back(std::move(row));
    };
    step({1, 17, 30, 90});
    step({1, 0, 20, 30});
    for (int i = 0; i < kDecodes - 1; ++i) step({1, 1, 1, 1});
    return all;
  }

  Rows run_rounded(DType kv) const {
    const auto runner = testing::make_rounded_runner(*model_.tensors, model_.config, kv, kBlocks);
    return run(runner.get());
  }

  Rows run_cuda(DType kv) const {
    auto made = std::make_unique<CudaBackend>(0);
    CudaBackend* backend = made.get();
    Weights weights = load_weights(*model_.tensors, model_.config, backend);
    KvCacheShape shape;
    shape.num_layers = model_.config.num_layers;
    shape.num_blocks = kBlocks;
    shape.block_size_tokens = kBlockTokens;
    shape.num_kv_heads = model_.config.num_kv_heads;
    shape.head_dim = model_.config.head_dim;
    shape.dtype = kv;
    auto cache = backend->make_kv_cache(shape);
    Transformer runner(model_.config, std::move(made), std::move(weights), std::move(cache));
    Rows rows = run(&runner);
    EXPECT_GT(backend->num_replayed_steps(), 5);
    return rows;
  }

  Distance distance(const Rows& rows) const {
    EXPECT_EQ(rows.size(), plain_.size());
    Distance distance;
    for (std::size_t r = 0; r < rows.size(); ++r) {
      const auto size = static_cast<double>(plain_[r].size());
      double mean = 0;
      double deviation = 0;
      for (const float logit : plain_[r]) mean += logit / size;
      for (const float logit : plain_[r]) deviation += (logit - mean) * (logit - mean) / size;
      for (std::size_t i = 0; i < plain_[r].size(); ++i) {
        const double error = std::abs(rows[r][i] - plain_[r][i]) / std::sqrt(deviation);
        EXPECT_FALSE(std::isnan(error)) << "row " << r;
        distance.rms += error * error / size / static_cast<double>(rows.size());
        distance.largest = std::max(distance.largest, error);
      }
    }
    distance.rms = std::sqrt(distance.rms);
    return distance;
  }

  ModelFiles model_;
  std::vector<std::vector<TokenId>> sequences_;
  Rows plain_;
};

// As far as bf16 takes them, and what rounding keys and values adds in float32: both have nothing
// to do with each other, so their squares add up. Less would be a cache of another type.
TEST_P(ByteCacheTest, CostsWhatItsRoundingCosts) {
  const Distance bf16 = distance(run_cuda(DType::kBF16));
  for (const DType kv : {DType::kI8, DType::kF8}) {
    SCOPED_TRACE(dtype_name(kv));
    const Distance rounding = distance(run_rounded(kv));
    const Distance cuda = distance(run_cuda(kv));
    const double expected = std::hypot(bf16.rms, rounding.rms);
    std::cout << dtype_name(kv) << ": rms " << cuda.rms << " of " << expected << " (bf16 "
              << bf16.rms << ", rounding " << rounding.rms << "), largest " << cuda.largest
              << " (bf16 " << bf16.largest << ", rounding " << rounding.largest << ")\n";
    EXPECT_LT(cuda.rms, 1.15 * expected);
    EXPECT_GT(cuda.rms, 0.85 * expected);
    EXPECT_LT(cuda.largest, 1.5 * (bf16.largest + rounding.largest));
  }
}

INSTANTIATE_TEST_SUITE_P(Families, ByteCacheTest,
                         ::testing::Values("llama", "llama3", "llama-linear", "mistral", "qwen2",
                                           "qwen2-yarn", "qwen3", "gpt2", "gemma3_text"),
                         [](const auto& test) {
                           std::string name = test.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace batchmill
