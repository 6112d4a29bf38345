// The CUDA backend on emulated threads through the Engine: the answers of the CPU backend.
#include "cuda/cuda_backend.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "engine/cpu/cpu_runner.h"
#include "engine/engine.h"
#include "engine/model_files.h"
#include "engine/transformer.h"
#include "engine/weights.h"
#include "tests/engine/golden_check.h"

namespace batchmill {
namespace {

constexpr std::int32_t kBlockTokens = 16;
constexpr float kCloseCall = 0.15f;  // a difference of logits that roundings can turn round

struct CudaModel {
  CudaModel(const ModelFiles& model, std::int32_t num_blocks) {
    auto made = std::make_unique<CudaBackend>(0);
    backend = made.get();
    Weights weights = load_weights(*model.tensors, model.config, backend);
    KvCacheShape shape;
    shape.num_layers = model.config.num_layers;
    shape.num_blocks = num_blocks;
    shape.block_size_tokens = kBlockTokens;
    shape.num_kv_heads = model.config.num_kv_heads;
    shape.head_dim = model.config.head_dim;
    shape.dtype = DType::kBF16;
    auto cache = backend->make_kv_cache(shape);
    runner = std::make_unique<Transformer>(model.config, std::move(made), std::move(weights),
                                           std::move(cache));
  }
  CudaBackend* backend;
  std::unique_ptr<Transformer> runner;
};

class CudaFamilyTest : public ::testing::TestWithParam<std::string> {
 protected:
  CudaFamilyTest()
      : model_(read_model_folder(std::string(BATCHMILL_TEST_DATA) + "/models/" + GetParam())) {
    std::mt19937 random(5);
    std::vector<TokenId> beginning(37);
    for (TokenId& token : beginning) token = static_cast<TokenId>(3 + random() % 310);
    for (const std::size_t length : {1u, 12u, 40u, 90u}) {
      std::vector<TokenId> prompt(length);
      for (TokenId& token : prompt) token = static_cast<TokenId>(3 + random() % 310);
      prompts_.push_back(prompt);
      prompt.insert(prompt.begin(), beginning.begin(), beginning.end());
      prompts_.push_back(std::move(prompt));
    }
  }

  std::map<RequestId, Choice> generate(ModelRunner* runner, std::int32_t max_num_batched_tokens) {
    EngineOptions options;
    options.max_num_seqs = 16;
    options.max_num_batched_tokens = max_num_batched_tokens;
    options.max_context_tokens = model_.config.max_context_tokens;
    Engine engine(options, runner, nullptr);
    for (std::size_t i = 0; i < prompts_.size(); ++i) {
      Request request;
      request.id = i;
      request.prompt = prompts_[i];
      request.params.temperature = 0.0f;
      request.params.max_tokens = 16;
      request.params.ignore_eos = true;
      request.params.logprobs = 2;
      engine.add(std::move(request));
    }
    std::map<RequestId, Choice> choices;
    while (engine.has_work()) {
      for (RequestOutput& output : engine.step().finished) {
        choices[output.id] = std::move(output.choices.at(0));
      }
    }
    return choices;
  }

  ModelFiles model_;
  std::vector<std::vector<TokenId>> prompts_;
};

// The tolerances of the CPU backend in bf16, against the models' own software in float32.
TEST_P(CudaFamilyTest, AgreesWithTheReference) {
  CudaModel cuda(model_, 128);
  testing::expect_agreement(
      testing::measure_agreement(cuda.runner.get(), std::string(BATCHMILL_TEST_DATA) + "/models/" +
                                                        GetParam() + "/golden.json"),
      testing::kTinyBf16);
}

// Backends round in other places: where the CPU's two best tokens are as close as that, either may
// be chosen, and the sequences part.
TEST_P(CudaFamilyTest, GeneratesTheTokensOfTheCpuBackend) {
  CpuOptions cpu;
  cpu.dtype = CpuDType::kBF16;
  cpu.threads = 1;
  cpu.block_size_tokens = kBlockTokens;
  cpu.num_blocks = 128;
  const auto cpu_runner = make_cpu_runner(*model_.tensors, model_.config, cpu);
  const std::map<RequestId, Choice> expected = generate(cpu_runner.get(), 2048);
  CudaModel cuda(model_, 128);
  for (const std::int32_t max_num_batched_tokens : {2048, 30}) {
    SCOPED_TRACE(max_num_batched_tokens);
    const std::map<RequestId, Choice> choices = generate(cuda.runner.get(), max_num_batched_tokens);
    ASSERT_EQ(choices.size(), prompts_.size());
    int compared = 0;
    float largest_error = 0.0f;
    for (const auto& [id, choice] : choices) {
      const Choice& other = expected.at(id);
      for (std::size_t t = 0; t < choice.token_ids.size(); ++t) {
        const std::vector<TokenLogprob>& top = other.logprobs[t].top;
        const float margin = top[0].logprob - top[1].logprob;
        if (choice.token_ids[t] == other.token_ids[t]) {
          const float error = choice.logprobs[t].chosen.logprob - other.logprobs[t].chosen.logprob;
          largest_error = std::max(largest_error, std::abs(error));
          ++compared;
          continue;
        }
        EXPECT_LT(margin, kCloseCall) << "request " << id << ", token " << t;
        break;
      }
    }
    std::cout << compared << " of 128 tokens equal, log-probabilities within " << largest_error
              << "\n";
    EXPECT_GE(compared, 90);
    EXPECT_LT(largest_error, 0.1f);
  }
  EXPECT_GT(cuda.backend->num_replayed_steps(), 5);
}

INSTANTIATE_TEST_SUITE_P(Families, CudaFamilyTest,
                         ::testing::Values("llama", "llama3", "llama-linear", "mistral", "qwen2",
                                           "qwen2-yarn", "qwen3", "gpt2", "gemma3_text"),
                         [](const auto& test) {
                           std::string name = test.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace batchmill
