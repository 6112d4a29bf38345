// Steps of an engine that has run before take no memory from the heap. Counts every operator new of
// the process, so it is a program of its own.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <new>
#include <random>
#include <string>
#include <vector>

#include "engine/cpu/cpu_runner.h"
#include "engine/engine.h"
#include "engine/model.h"

namespace {

std::atomic<std::int64_t> num_allocations{0};

void* counted(std::size_t size, std::size_t alignment) {
  num_allocations.fetch_add(1, std::memory_order_relaxed);
  void* memory =
      alignment <= alignof(std::max_align_t)
          ? std::malloc(size)
          : std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

// Where g++ inlines one of these and not its counterpart, it sees two that do not belong together.
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"
void* operator new(std::size_t size) { return counted(size, 1); }
void* operator new[](std::size_t size) { return counted(size, 1); }
void* operator new(std::size_t size, std::align_val_t alignment) {
  return counted(size, static_cast<std::size_t>(alignment));
}
void* operator new[](std::size_t size, std::align_val_t alignment) {
  return counted(size, static_cast<std::size_t>(alignment));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }

namespace batchmill::testing {
namespace {

constexpr std::int32_t kBlockSize = 16;
constexpr int kLines = 24;
constexpr int kFamilies = 4;
constexpr int kAnswerTokens = 40;

// Computes nothing: what allocates is the engine.
class NullRunner : public ModelRunner {
 public:
  NullRunner(std::int32_t vocab_size, std::int32_t num_blocks, bool draws_tokens)
      : vocab_size_(vocab_size), num_blocks_(num_blocks), draws_tokens_(draws_tokens) {}
  std::int32_t vocab_size() const override { return vocab_size_; }
  std::int32_t block_size_tokens() const override { return kBlockSize; }
  std::int32_t num_blocks() const override { return num_blocks_; }
  void forward(const Batch& batch, std::span<float> logits) override {
    for (std::size_t i = 0; i < logits.size(); ++i) {
      logits[i] = static_cast<float>((i * 7 + batch.token_ids.size()) % 31);
    }
  }
  bool draws_tokens() const override { return draws_tokens_; }
  void begin(const Batch&, std::span<const Draw>) override {}
  void end(std::span<Draw> draws, std::span<const std::int32_t>, std::span<float>) override {
    for (Draw& draw : draws) {
      const std::size_t seen = draw.context.prompt.size() + draw.context.generated.size();
      draw.token = static_cast<TokenId>(seen * 7 % static_cast<std::size_t>(vocab_size_));
    }
  }

 private:
  std::int32_t vocab_size_;
  std::int32_t num_blocks_;
  bool draws_tokens_;
};

struct Kind {
  const char* name;
  SamplingParams params;
};

std::vector<Kind> kinds() {
  std::vector<Kind> kinds(4);
  for (Kind& kind : kinds) {
    kind.params.ignore_eos = true;
    kind.params.max_tokens = kAnswerTokens;
  }
  kinds[0].name = "greedy";
  kinds[0].params.temperature = 0.0f;
  kinds[1].name = "top_k and top_p";
  kinds[1].params.top_k = 20;
  kinds[1].params.top_p = 0.9f;
  kinds[2].name = "penalties";
  kinds[2].params.repetition_penalty = 1.2f;
  kinds[2].params.frequency_penalty = 0.1f;
  kinds[3].name = "stop strings";
  kinds[3].params.stop = {"no answer holds this text"};
  return kinds;
}

struct Steps {
  int prefill = 0;  // that hold rows of prompts
  int decode = 0;  // that hold no others
  std::int64_t allocations = 0;
};

// Families of prompts of the same shape in each round, of other tokens; longer than a step.
Steps run_round(Engine& engine, int round, std::int32_t vocab_size, const SamplingParams& params) {
  std::mt19937 random(static_cast<unsigned>(round));
  std::uniform_int_distribution<TokenId> any(0, vocab_size - 1);
  std::vector<TokenId> system;
  for (int i = 0; i < kLines; ++i) {
    if (i % (kLines / kFamilies) == 0) {
      system.assign(40, static_cast<TokenId>(round % vocab_size));
      for (int t = 0; t < 30; ++t) system.push_back(any(random));
      // Families differ from their first token on.
      system.front() = static_cast<TokenId>((round * kFamilies + i) % vocab_size);
    }
    Request request;
    request.id = static_cast<RequestId>(i);
    request.prompt = system;
    request.prompt.push_back(static_cast<TokenId>(i));  // lines differ behind their system prompt
    for (int t = 0; t < 25; ++t) request.prompt.push_back(any(random));
    request.params = params;
    request.params.seed = static_cast<std::uint64_t>(i);
    request.num_wanted_tokens = i % 2 == 0 ? -1 : 70;
    engine.add(std::move(request));
  }
  Steps steps;
  while (engine.has_work()) {
    const std::int64_t before = num_allocations;
    const StepOutput& output = engine.step();
    const std::int64_t allocations = num_allocations - before;
    bool has_prefill = false;
    for (const RequestWork& work : output.work) has_prefill |= work.num_prefill_tokens > 0;
    // A line's end makes its result, which its owner takes.
    if (!output.finished.empty()) continue;
    ++(has_prefill ? steps.prefill : steps.decode);
    steps.allocations += allocations;
  }
  return steps;
}

EngineOptions engine_options() {
  EngineOptions options;
  options.max_num_seqs = 12;
  options.max_num_batched_tokens = 60;
  options.max_context_tokens = 256;
  options.generation_reserve_tokens = kAnswerTokens;
  return options;
}

void expect_no_allocations(ModelRunner* runner, const Tokenizer* tokenizer) {
  for (const Kind& kind : kinds()) {
    SCOPED_TRACE(kind.name);
    Engine engine(engine_options(), runner, tokenizer);
    // What a step of this shape needs is there after the first ones, and what the tree needs once
    // it has been full.
    int round = 0;
    const auto run = [&] { return run_round(engine, ++round, runner->vocab_size(), kind.params); };
    run();
    while (engine.stats().num_cached_blocks < runner->num_blocks() * 9 / 10) run();
    run();
    const Steps steps = run();
    EXPECT_GE(steps.prefill, 10);
    EXPECT_GE(steps.decode, 10);
    EXPECT_EQ(steps.allocations, 0);
    EXPECT_EQ(engine.stats().num_preemptions, 0);
  }
}

std::shared_ptr<const Model> tiny_model() {
  return Model::open(std::string(BATCHMILL_TEST_DATA) + "/models/llama3/model-q4_0.gguf");
}

TEST(AllocationTest, StepsOfTheEngineTakeNoMemory) {
  const auto model = tiny_model();
  for (const std::int32_t num_blocks : {512, 130}) {  // without evictions, and with
    for (const bool draws_tokens : {false, true}) {
      SCOPED_TRACE(std::to_string(num_blocks) + (draws_tokens ? ", tokens drawn there" : ""));
      NullRunner runner(model->config().vocab_size, num_blocks, draws_tokens);
      expect_no_allocations(&runner, model->tokenizer());
    }
  }
}

TEST(AllocationTest, StepsOfTheWholeModelTakeNoMemory) {
  const auto model = tiny_model();
  CpuOptions options;
  options.dtype = CpuDType::kInt8;  // oneDNN, which multiplies the other types, allocates in calls
  options.threads = 2;
  options.block_size_tokens = kBlockSize;
  options.num_blocks = 130;
  const auto runner = make_cpu_runner(*model, options);
  expect_no_allocations(runner.get(), model->tokenizer());
}

}  // namespace
}  // namespace batchmill::testing
