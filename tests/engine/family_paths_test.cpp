// Every family through the Engine: however a prompt gets into the KV cache (at once, in chunks,
// token by token, with company, from the prefix tree, again after a preemption), a request gets the
// same answer, to the bit.
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>
#include <vector>

#include "engine/cpu/cpu_runner.h"
#include "engine/engine.h"
#include "engine/model_files.h"
#include "tests/engine/golden_models.h"

namespace batchmill {
namespace {

struct Setting {
  std::int32_t num_blocks = 256;
  std::int32_t max_num_seqs = 32;
  std::int32_t max_num_batched_tokens = 2048;
  bool one_by_one = false;  // each request runs alone, over the same tree
};

class FamilyPathsTest : public ::testing::TestWithParam<std::string> {
 protected:
  FamilyPathsTest()
      : model_(read_model_folder(std::string(BATCHMILL_TEST_DATA) + "/models/" + GetParam())) {
    // Two families with a shared beginning of uneven length, and single ones. The longest leave
    // every window and every original context behind.
    std::mt19937 random(11);
    const auto ids = [&](std::size_t count) {
      std::vector<TokenId> tokens(count);
      for (TokenId& token : tokens) token = static_cast<TokenId>(3 + random() % 310);
      return tokens;
    };
    for (const std::size_t shared : {37u, 100u}) {
      const std::vector<TokenId> beginning = ids(shared);
      for (int i = 0; i < 3; ++i) {
        std::vector<TokenId> prompt = beginning;
        const std::vector<TokenId> rest = ids(1 + random() % 40);
        prompt.insert(prompt.end(), rest.begin(), rest.end());
        prompts_.push_back(std::move(prompt));
      }
    }
    for (int i = 0; i < 3; ++i) prompts_.push_back(ids(1 + random() % 140));
  }

  struct Answers {
    std::map<RequestId, RequestOutput> outputs;
    EngineStats stats;
  };

  Answers run(const Setting& setting, const std::vector<std::vector<TokenId>>& prompts) {
    CpuOptions cpu;
    cpu.dtype = CpuDType::kF32;
    cpu.threads = 2;
    cpu.block_size_tokens = 16;
    cpu.num_blocks = setting.num_blocks;
    cpu.deterministic = true;
    const auto runner = make_cpu_runner(*model_.tensors, model_.config, cpu);
    EngineOptions options;
    options.max_num_seqs = setting.max_num_seqs;
    options.max_num_batched_tokens = setting.max_num_batched_tokens;
    options.max_context_tokens = model_.config.max_context_tokens;
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
    for (std::size_t i = 0; i < prompts.size(); ++i) {
      Request request;
      request.id = i;
      request.prompt = prompts[i];
      request.params.temperature = 0.0f;
      request.params.max_tokens = 24;
      request.params.ignore_eos = true;
      request.params.logprobs = 3;
      engine.add(std::move(request));
      if (setting.one_by_one) finish();
    }
    finish();
    answers.stats = engine.stats();
    return answers;
  }

  // Each request in an engine of its own.
  Answers run_alone() {
    Answers answers;
    for (std::size_t i = 0; i < prompts_.size(); ++i) {
      answers.outputs[i] = run({}, {prompts_[i]}).outputs.at(0);
    }
    return answers;
  }

  static void expect_same(const Answers& got, const Answers& want) {
    ASSERT_EQ(got.outputs.size(), want.outputs.size());
    for (const auto& [id, expected] : want.outputs) {
      const Choice& a = got.outputs.at(id).choices.at(0);
      const Choice& b = expected.choices.at(0);
      ASSERT_EQ(a.token_ids, b.token_ids) << "request " << id;
      ASSERT_EQ(a.logprobs.size(), 24u);
      for (std::size_t t = 0; t < a.logprobs.size(); ++t) {
        ASSERT_EQ(a.logprobs[t].chosen.logprob, b.logprobs[t].chosen.logprob)
            << "request " << id << ", token " << t;
      }
    }
  }

  ModelFiles model_;
  std::vector<std::vector<TokenId>> prompts_;
};

TEST_P(FamilyPathsTest, AllWaysGiveTheSameAnswer) {
  const Answers alone = run_alone();
  {
    SCOPED_TRACE("with company and shared prefixes");
    const Answers together = run({}, prompts_);
    EXPECT_GT(together.stats.prefix_hits_tokens, 0);
    expect_same(together, alone);
  }
  {
    SCOPED_TRACE("from the tree of earlier requests");
    const Answers later = run({.one_by_one = true}, prompts_);
    EXPECT_GT(later.stats.prefix_hits_tokens, 0);
    expect_same(later, alone);
  }
  {
    SCOPED_TRACE("in chunks");
    expect_same(run({.max_num_batched_tokens = 23}, prompts_), alone);
  }
  {
    SCOPED_TRACE("token by token");
    expect_same(run({.max_num_seqs = 1, .max_num_batched_tokens = 1}, prompts_), alone);
  }
  {
    SCOPED_TRACE("after preemptions");
    const Answers squeezed = run({.num_blocks = 14}, prompts_);
    EXPECT_GT(squeezed.stats.num_preemptions, 0);
    expect_same(squeezed, alone);
  }
}

INSTANTIATE_TEST_SUITE_P(Families, FamilyPathsTest, ::testing::ValuesIn(testing::model_folders()),
                         [](const auto& test) {
                           std::string name = test.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace batchmill
