// A real model through the Engine: however its prompt gets into the KV cache (at once, in chunks,
// with company, from the prefix tree, again after a preemption), a request gets the same answer.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "engine/cpu/cpu_runner.h"
#include "engine/engine.h"
#include "engine/model.h"

namespace batchmill {
namespace {

constexpr std::int32_t kTopLogprobs = 3;

// Largest difference of a log-probability from the request's answer when it runs alone. bf16: a few
// of the 8-bit mantissa's steps through two layers.
struct Precision {
  const char* name;
  CpuDType dtype;
  double tolerance;
  bool same_tokens;
};

void PrintTo(const Precision& precision, std::ostream* os) { *os << precision.name; }

class EnginePathsTest : public ::testing::TestWithParam<Precision> {
 protected:
  struct Setting {
    std::int32_t num_blocks = 256;
    std::int32_t max_num_seqs = 32;
    std::int32_t max_num_batched_tokens = 2048;
    bool one_by_one = false;  // each request runs alone, over the same tree
  };

  struct Answers {
    std::map<RequestId, RequestOutput> outputs;
    EngineStats stats;
  };

  EnginePathsTest()
      : model_(Model::open(std::string(BATCHMILL_TEST_DATA) + "/models/llama3/model-f16.gguf")) {
    // Three families with a shared beginning of uneven length, and single ones.
    std::mt19937 random(11);
    const auto ids = [&](std::size_t count) {
      std::vector<TokenId> tokens(count);
      for (TokenId& token : tokens) token = static_cast<TokenId>(3 + random() % 380);
      return tokens;
    };
    for (const std::size_t shared : {5u, 37u, 100u}) {
      const std::vector<TokenId> beginning = ids(shared);
      for (int i = 0; i < 5; ++i) {
        std::vector<TokenId> prompt = beginning;
        const std::vector<TokenId> rest = ids(1 + random() % 40);
        prompt.insert(prompt.end(), rest.begin(), rest.end());
        prompts_.push_back(std::move(prompt));
      }
    }
    for (int i = 0; i < 5; ++i) prompts_.push_back(ids(1 + random() % 150));
  }

  Answers run(const Setting& setting) {
    CpuOptions cpu;
    cpu.dtype = GetParam().dtype;
    cpu.threads = 2;
    cpu.block_size_tokens = 16;
    cpu.num_blocks = setting.num_blocks;
    const auto runner = make_cpu_runner(*model_, cpu);
    EngineOptions options;
    options.max_num_seqs = setting.max_num_seqs;
    options.max_num_batched_tokens = setting.max_num_batched_tokens;
    options.max_context_tokens = model_->config().max_context_tokens;
    options.generation_reserve_tokens = 4;
    Engine engine(options, runner.get(), nullptr);
    Answers answers;
    const auto finish = [&] {
      while (engine.has_work()) {
        for (RequestOutput& output : engine.step().finished) {
          answers.outputs[output.id] = std::move(output);
        }
      }
    };
    for (std::size_t i = 0; i < prompts_.size(); ++i) {
      Request request;
      request.id = i;
      request.prompt = prompts_[i];
      request.params.temperature = 0.0f;
      request.params.max_tokens = 48;
      request.params.ignore_eos = true;
      request.params.logprobs = kTopLogprobs;
      engine.add(std::move(request));
      if (setting.one_by_one) finish();
    }
    finish();
    answers.stats = engine.stats();
    EXPECT_EQ(answers.stats.num_free_blocks, answers.stats.num_blocks);
    return answers;
  }

  // Each request in an engine of its own.
  Answers run_alone() {
    Answers answers;
    const std::vector<std::vector<TokenId>> all = prompts_;
    for (std::size_t i = 0; i < all.size(); ++i) {
      prompts_ = {all[i]};
      answers.outputs[i] = run({}).outputs.at(0);
    }
    prompts_ = all;
    return answers;
  }

  void expect_same(const Answers& got, const Answers& want) {
    ASSERT_EQ(got.outputs.size(), want.outputs.size());
    for (const auto& [id, expected] : want.outputs) {
      const Choice& a = got.outputs.at(id).choices.at(0);
      const Choice& b = expected.choices.at(0);
      ASSERT_EQ(a.logprobs.size(), b.logprobs.size());
      if (GetParam().same_tokens) {
        ASSERT_EQ(a.token_ids, b.token_ids) << "request " << id;
      }
      for (std::size_t t = 0; t < a.logprobs.size(); ++t) {
        // Behind a first different token the rest means nothing.
        if (a.token_ids[t] != b.token_ids[t]) break;
        ASSERT_NEAR(a.logprobs[t].chosen.logprob, b.logprobs[t].chosen.logprob,
                    GetParam().tolerance)
            << "request " << id << ", token " << t;
      }
    }
  }

  std::shared_ptr<const Model> model_;
  std::vector<std::vector<TokenId>> prompts_;
};

TEST_P(EnginePathsTest, WithCompanyAndSharedPrefixes) {
  const Answers together = run({});
  EXPECT_GT(together.stats.prefix_hits_tokens, 0);
  expect_same(together, run_alone());
}

TEST_P(EnginePathsTest, FromTheTreeOfEarlierRequests) {
  const Answers later = run({.one_by_one = true});
  EXPECT_GT(later.stats.prefix_hits_tokens, 0);
  expect_same(later, run_alone());
}

TEST_P(EnginePathsTest, InChunks) {
  const Answers chunked = run({.max_num_batched_tokens = 23});
  expect_same(chunked, run_alone());
}

TEST_P(EnginePathsTest, TokenByToken) {
  const Answers single = run({.max_num_seqs = 1, .max_num_batched_tokens = 1});
  expect_same(single, run_alone());
}

TEST_P(EnginePathsTest, AfterPreemptions) {
  // 16 blocks of 16 tokens: little more than the longest sequence.
  const Answers squeezed = run({.num_blocks = 16});
  EXPECT_GT(squeezed.stats.num_preemptions, 0);
  expect_same(squeezed, run_alone());
}

INSTANTIATE_TEST_SUITE_P(Precisions, EnginePathsTest,
                         ::testing::Values(Precision{"f32", CpuDType::kF32, 1e-5, true},
                                           Precision{"bf16", CpuDType::kBF16, 0.15, false}),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace batchmill
