// Device memory that steps take, against what is planned for them before a model is loaded.
#include <gtest/gtest.h>

#include <utility>

#include "cuda/emulation/devices.h"
#include "engine/engine.h"
#include "tests/cuda/step_model.h"
#include "tools/gpu_runner.h"

namespace batchmill::testing {
namespace {

constexpr std::int32_t kContextTokens = 2048;
constexpr std::int32_t kBlocks = 600;
constexpr std::int64_t kListBytes = 128 << 10;  // of steps and plans: the runtime's share has room

constexpr ModelShape kShape{"memory", 1, 64, 64, 16, 1, 64, 512};

class StepMemoryTest : public ::testing::Test {
 protected:
  StepMemoryTest() : model_(kShape, kBlocks, kContextTokens) {
    options_.max_num_seqs = 24;
    options_.max_num_batched_tokens = 256;
    options_.max_context_tokens = kContextTokens;
    before_ = emulation::free_bytes(0);
  }

  std::int64_t planned_bytes() const {
    GpuOptions options;
    options.block_size_tokens = kStepBlockTokens;
    options.max_num_seqs = options_.max_num_seqs;
    options.max_num_batched_tokens = options_.max_num_batched_tokens;
    return loaded_gpu_claim(model_.config(), options).fixed_bytes - kGpuRuntimeBytes;
  }
  std::int64_t used_bytes() const {
    return static_cast<std::int64_t>(before_ - emulation::free_bytes(0));
  }

  // Prompts that are alike but for their last `tail` tokens.
  Request request(RequestId id, std::int32_t prompt, std::int32_t tail) const {
    Request request;
    request.id = id;
    for (std::int32_t i = 0; i < prompt; ++i) {
      const auto own = static_cast<std::int32_t>(i < prompt - tail ? 0 : id * 17);
      request.prompt.push_back((i * 13 + i * i + own) % kShape.vocab);
    }
    request.params.temperature = 0.8f;
    request.params.max_tokens = 3;
    request.params.ignore_eos = true;
    return request;
  }
  void run(std::vector<Request> requests) {
    Engine engine(options_, &model_.transformer(), nullptr);
    for (Request& request : requests) engine.add(std::move(request));
    while (engine.has_work()) {
      for (const RequestOutput& output : engine.step().finished) ASSERT_EQ(output.error, "");
    }
  }

  StepModel model_;
  EngineOptions options_;
  std::size_t before_ = 0;
};

TEST_F(StepMemoryTest, IsWhatIsPlannedForTheLargestSteps) {
  std::vector<Request> many;  // choices, whose first tokens are drawn from one row each
  for (RequestId id = 0; id < 2; ++id) {
    many.push_back(request(id, 5, 5));
    many.back().num_choices = 70;
    many.back().params.repetition_penalty = 1.1f;
  }
  run(std::move(many));
  std::vector<Request> explained;
  for (RequestId id = 0; id < 24; ++id) {
    explained.push_back(request(id, id == 0 ? 400 : 3, 3));
    explained.back().params.prompt_logprobs = id == 0;
  }
  run(std::move(explained));
  std::vector<Request> beginning;  // a long one, which is in the cache before the others come
  beginning.push_back(request(0, 1900, 8));
  run(beginning);
  std::vector<Request> shared;
  for (RequestId id = 0; id < 24; ++id) shared.push_back(request(id, 1900, 8));
  run(std::move(shared));
  EXPECT_LE(used_bytes(), planned_bytes() + kListBytes);
  EXPECT_GE(used_bytes(), planned_bytes() / 2);
}

}  // namespace
}  // namespace batchmill::testing
