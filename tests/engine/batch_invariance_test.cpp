// With the deterministic option a request's answer is the same to the last bit whatever shares its
// steps, however its prompt is cut into chunks, with and without prefix hits, after preemptions,
// and on one or two threads. Run by ctest a second time with ONEDNN_MAX_CPU_ISA=AVX2, as on
// processors without AVX-512.
#include <gtest/gtest.h>

#include <bit>
#include <cstdlib>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "engine/cpu/cpu_runner.h"
#include "engine/engine.h"
#include "engine/model.h"
#include "tests/support/reference_data.h"

namespace batchmill {
namespace {

struct Case {
  std::string name;
  std::string model;  // below tests/data/models, else below the reference data's models
  CpuDType dtype = CpuDType::kF32;
  int num_compositions = 0;
};

void PrintTo(const Case& one, std::ostream* os) { *os << one.name; }

// The instruction set that ONEDNN_MAX_CPU_ISA leaves.
InstructionSet instruction_set() {
  const char* const limit = std::getenv("ONEDNN_MAX_CPU_ISA");
  return limit != nullptr && std::string(limit) == "AVX2"
             ? std::min(InstructionSet::kAvx2, best_instruction_set())
             : best_instruction_set();
}

void expect_equal(const std::vector<PositionLogprobs>& a, const std::vector<PositionLogprobs>& b) {
  const auto same = [](const TokenLogprob& x, const TokenLogprob& y) {
    return x.token == y.token &&
           std::bit_cast<std::uint32_t>(x.logprob) == std::bit_cast<std::uint32_t>(y.logprob);
  };
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    ASSERT_TRUE(same(a[i].chosen, b[i].chosen))
        << "position " << i << ": " << a[i].chosen.logprob << " and " << b[i].chosen.logprob;
    ASSERT_EQ(a[i].top.size(), b[i].top.size());
    for (std::size_t j = 0; j < a[i].top.size(); ++j) {
      ASSERT_TRUE(same(a[i].top[j], b[i].top[j])) << "position " << i << ", candidate " << j;
    }
  }
}

class BatchInvarianceTest : public ::testing::TestWithParam<Case> {
 protected:
  int pick(int low, int high) { return std::uniform_int_distribution(low, high)(random_); }
  bool chance(int percent) { return pick(1, 100) <= percent; }

  void open() {
    std::string path = BATCHMILL_TEST_DATA "/models/" + GetParam().model;
    if (!std::filesystem::exists(path)) {
      path = testing::reference_file("models/" + GetParam().model).string();
    }
    if (path.empty()) GTEST_SKIP() << "skipped: no model " << GetParam().model;
    try {
      model_ = Model::open(path);
    } catch (const std::exception& error) {
      GTEST_SKIP() << "skipped: " << error.what();
    }
    for (auto& family : families_) family = tokens(pick(1, 130));
  }

  std::vector<TokenId> tokens(int count) {
    std::vector<TokenId> result;
    for (int i = 0; i < count; ++i) {
      result.push_back(pick(3, model_->config().vocab_size - 1));
    }
    return result;
  }

  Request next(RequestId id) {
    const auto& family = families_[static_cast<std::size_t>(pick(0, 3))];
    Request request;
    request.id = id;
    request.prompt.assign(family.begin(),
                          family.begin() + pick(1, static_cast<int>(family.size())));
    if (chance(80)) {
      const std::vector<TokenId> rest = tokens(pick(1, 40));
      request.prompt.insert(request.prompt.end(), rest.begin(), rest.end());
    }
    request.params.temperature = chance(50) ? 0.0f : 0.9f;
    request.params.seed = static_cast<std::uint64_t>(pick(0, 3));
    request.params.max_tokens = pick(1, 24);
    request.params.ignore_eos = true;
    request.params.logprobs = 3;
    request.params.prompt_logprobs = chance(10);
    if (chance(15)) request.num_choices = pick(2, 3);
    return request;
  }

  std::unique_ptr<CpuRunner> runner(int threads, int block_size_tokens, int num_blocks) {
    CpuOptions cpu;
    cpu.dtype = GetParam().dtype;
    cpu.threads = threads;
    cpu.block_size_tokens = block_size_tokens;
    cpu.num_blocks = num_blocks;
    cpu.deterministic = true;
    cpu.instruction_set = instruction_set();
    return make_cpu_runner(*model_, cpu);
  }

  EngineOptions engine_options() const {
    EngineOptions options;
    options.max_context_tokens = std::min(model_->config().max_context_tokens, 256);
    options.generation_reserve_tokens = 4;
    return options;
  }

  std::shared_ptr<const Model> model_;
  std::mt19937 random_{23};
  std::array<std::vector<TokenId>, 4> families_;
};

TEST_P(BatchInvarianceTest, GivesEachRequestItsBitsOfBeingAlone) {
  ASSERT_NO_FATAL_FAILURE(open());
  if (model_ == nullptr) return;
  const auto runner_alone = runner(1, 16, 40);
  std::int64_t preemptions = 0;
  std::int64_t hits = 0;
  const int num_compositions = instruction_set() == best_instruction_set()
                                   ? GetParam().num_compositions
                                   : GetParam().num_compositions / 5;
  for (int composition = 0; composition < num_compositions; ++composition) {
    SCOPED_TRACE("composition " + std::to_string(composition));
    const int block_size = 16 * pick(1, 3);
    const int longest_blocks = (256 + block_size - 1) / block_size;
    const auto device =
        runner(pick(1, 2), block_size, longest_blocks + (chance(50) ? pick(0, 4) : 60));
    EngineOptions options = engine_options();
    options.max_num_seqs = pick(1, 12);
    options.max_num_batched_tokens = chance(50) ? pick(1, 40) : pick(41, 600);
    Engine engine(options, device.get(), nullptr);

    std::map<RequestId, Request> requests;
    std::map<RequestId, RequestOutput> outputs;
    const auto num_requests = static_cast<std::size_t>(pick(2, 9));
    while (requests.size() < num_requests || engine.has_work()) {
      while (requests.size() < num_requests && chance(60)) {
        Request request = next(requests.size());
        requests.emplace(request.id, request);
        engine.add(std::move(request));
      }
      for (RequestOutput& output : engine.step().finished) outputs[output.id] = std::move(output);
    }
    preemptions += engine.stats().num_preemptions;
    hits += engine.stats().prefix_hits_tokens;

    for (const auto& [id, request] : requests) {
      SCOPED_TRACE("request " + std::to_string(id));
      Engine alone(engine_options(), runner_alone.get(), nullptr);
      alone.add(request);
      RequestOutput expected;
      while (alone.has_work()) {
        for (RequestOutput& output : alone.step().finished) expected = std::move(output);
      }
      const RequestOutput& output = outputs.at(id);
      ASSERT_NO_FATAL_FAILURE(expect_equal(output.prompt_logprobs, expected.prompt_logprobs));
      ASSERT_EQ(output.choices.size(), expected.choices.size());
      for (std::size_t i = 0; i < output.choices.size(); ++i) {
        ASSERT_EQ(output.choices[i].token_ids, expected.choices[i].token_ids);
        ASSERT_NO_FATAL_FAILURE(
            expect_equal(output.choices[i].logprobs, expected.choices[i].logprobs));
      }
    }
  }
  EXPECT_GT(hits, 0);
  if (num_compositions >= 40) {
    EXPECT_GT(preemptions, 0);
  }
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const auto& [suffix, dtype] :
       {std::pair{"f32", CpuDType::kF32}, {"bf16", CpuDType::kBF16}, {"int8", CpuDType::kInt8}}) {
    all.push_back({std::string("llama3_") + suffix, "llama3/model-f16.gguf", dtype, 200});
    for (const char* const family :
         {"mistral", "qwen2", "qwen3", "gpt2", "gemma3_text", "deepseek_v3"}) {
      all.push_back({std::string(family) + "_" + suffix, family, dtype, 40});
    }
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Models, BatchInvarianceTest, ::testing::ValuesIn(cases()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace batchmill
