// The CUDA backend on emulated threads through the Engine: the answers of the CPU backend.
#include "cuda/cuda_backend.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "cuda/emulation/devices.h"
#include "cuda/emulation/work_queue.h"
#include "engine/cpu/cpu_runner.h"
#include "engine/engine.h"
#include "engine/model_files.h"
#include "engine/transformer.h"
#include "engine/weights.h"
#include "tests/engine/golden_check.h"

namespace batchmill {
namespace {

constexpr std::int32_t kBlockTokens = 16;
// A difference of log-probabilities that roundings can turn round, how far these move otherwise,
// and how many tokens come before: 0.037, 0.052 and 104 are the worst of any family.
constexpr float kCloseCall = 0.06f;
constexpr float kLargestError = 0.07f;
constexpr int kFewestEqual = 100;

// Counts the rows of logits that come to the host, and steps begun before what the step before drew
// was read.
class CountingBackend : public CudaBackend {
 public:
  using CudaBackend::CudaBackend;
  void begin_draws(const Tensor& logits, std::span<const Draw> draws) override {
    CudaBackend::begin_draws(logits, draws);
    if (++num_under_way_ == 2) ++num_steps_ahead;
  }
  void end_draws(std::span<Draw> draws) override {
    const std::size_t before = emulation::num_waiting();
    CudaBackend::end_draws(draws);
    // The step's own work has run now, and not before. Of the step behind it none has.
    const std::size_t after = emulation::num_waiting();
    if (before > after && after >= kLeastWork * (num_under_way_ - 1)) ++num_late_steps;
    ++num_steps;
    --num_under_way_;
  }
  void download(const Tensor& device, std::span<float> host) override {
    num_rows += device.rows;
    CudaBackend::download(device, host);
  }
  std::int64_t num_rows = 0;
  std::int64_t num_steps = 0;
  std::int64_t num_steps_ahead = 0;
  std::int64_t num_late_steps = 0;  // computed when somebody waited for them

 private:
  static constexpr std::size_t kLeastWork = 20;  // pieces of a step
  std::size_t num_under_way_ = 0;
};

struct CudaModel {
  CudaModel(const ModelFiles& model, std::int32_t num_blocks) {
    auto made = std::make_unique<CountingBackend>(0);
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
  CountingBackend* backend;
  std::unique_ptr<Transformer> runner;
};

// Samples on the host, whatever the model's device can do.
class HostSampled : public ModelRunner {
 public:
  explicit HostSampled(ModelRunner* inner) : inner_(*inner) {}
  std::int32_t vocab_size() const override { return inner_.vocab_size(); }
  std::int32_t block_size_tokens() const override { return inner_.block_size_tokens(); }
  std::int32_t num_blocks() const override { return inner_.num_blocks(); }
  void forward(const Batch& batch, std::span<float> logits) override {
    inner_.forward(batch, logits);
  }

 private:
  ModelRunner& inner_;
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
    float largest_margin = 0.0f;
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
        largest_margin = std::max(largest_margin, margin);
        EXPECT_LT(margin, kCloseCall) << "request " << id << ", token " << t;
        break;
      }
    }
    std::cout << compared << " of 128 tokens equal, log-probabilities within " << largest_error
              << ", other tokens where two were within " << largest_margin << "\n";
    EXPECT_GE(compared, kFewestEqual);
    EXPECT_LT(largest_error, kLargestError);
  }
  EXPECT_GT(cuda.backend->num_replayed_steps(), 5);
}

bool has_logprobs(RequestId id) { return id % 11 == 1 && id > 11; }

// One request of each kind, over and over, in steps with all the others.
std::vector<Request> requests_of_every_kind() {
  std::vector<Request> requests(44);
  std::mt19937 random(11);
  for (std::size_t i = 0; i < requests.size(); ++i) {
    Request& request = requests[i];
    request.id = i;
    request.prompt.resize(1 + random() % 60);
    for (TokenId& token : request.prompt) token = static_cast<TokenId>(3 + random() % 310);
    SamplingParams& params = request.params;
    params.seed = random();
    params.max_tokens = 14;
    params.temperature = 0.9f;
    const std::size_t kind = i % 11;
    if (kind == 0) params.temperature = 0.0f;
    if (kind == 2 || kind == 3) params.top_k = 30;
    if (kind == 3 || kind == 4) params.top_p = 0.8f;
    if (kind == 5) params.min_p = 0.1f;
    if (kind == 6) params.repetition_penalty = 1.4f;
    if (kind == 7) params.frequency_penalty = 0.9f;
    if (kind == 7 || kind == 8) params.presence_penalty = -0.8f;
    if (kind == 8) params.temperature = 0.0f;
    if (kind == 9) params.logit_bias = {{5, 6.0f}, {9, 6.5f}, {5, -1.0f}};
    if (kind == 9 || kind == 10) params.min_tokens = 9;
    if (kind == 10) params.stop_token_ids = {5, 9, 100000};
    if (kind == 10) request.num_choices = 3;
    if (has_logprobs(i)) params.logprobs = 1;
    if (kind == 4 && i > 11) params.prompt_logprobs = true;
  }
  return requests;
}

TEST(CudaDrawTest, DrawsTheTokensThatTheHostSamples) {
  const ModelFiles model = read_model_folder(std::string(BATCHMILL_TEST_DATA) + "/models/llama3");
  EngineOptions options;
  options.max_num_seqs = 20;
  options.max_num_batched_tokens = 90;
  options.max_context_tokens = model.config.max_context_tokens;
  options.eos_token_ids = {7, 8};
  std::vector<std::vector<TokenId>> tokens[2];
  for (const bool draws : {false, true}) {
    CudaModel cuda(model, 256);
    HostSampled host(cuda.runner.get());
    ASSERT_TRUE(cuda.runner->draws_tokens());
    Engine engine(options, draws ? cuda.runner.get() : static_cast<ModelRunner*>(&host), nullptr);
    tokens[draws].resize(44 * 3);
    std::int64_t wanted_rows = 0;
    for (Request& request : requests_of_every_kind()) {
      if (request.params.prompt_logprobs) {
        wanted_rows += static_cast<std::int64_t>(request.prompt.size());
      }
      engine.add(std::move(request));
    }
    while (engine.has_work()) {
      for (const RequestOutput& output : engine.step().finished) {
        EXPECT_EQ(output.error, "");
        if (has_logprobs(output.id)) wanted_rows += output.num_completion_tokens;
        for (std::size_t i = 0; i < output.choices.size(); ++i) {
          tokens[draws][output.id * 3 + i] = output.choices[i].token_ids;
        }
      }
    }
    EXPECT_EQ(engine.stats().num_preemptions, 0);
    if (draws) {
      EXPECT_EQ(cuda.backend->num_rows, wanted_rows);
    } else {
      EXPECT_GT(cuda.backend->num_rows, 2 * wanted_rows);
    }
  }
  EXPECT_EQ(tokens[0], tokens[1]);
}

// All choices of a prompt are drawn at once, far more than there may be sequences.
TEST(CudaDrawTest, ManyDrawsFromARowNeedTheMemoryOfFew) {
  const ModelFiles model = read_model_folder(std::string(BATCHMILL_TEST_DATA) + "/models/llama3");
  EngineOptions options;
  options.max_num_seqs = 8;
  options.max_num_batched_tokens = 64;
  options.max_context_tokens = model.config.max_context_tokens;
  constexpr std::int32_t kChoices = 40;
  std::array<std::vector<std::vector<TokenId>>, 2> tokens;
  std::array<std::size_t, 2> used_bytes{};
  for (const bool draws : {false, true}) {
    CudaModel cuda(model, 128);
    const std::size_t before = emulation::free_bytes(0);
    HostSampled host(cuda.runner.get());
    Engine engine(options, draws ? cuda.runner.get() : static_cast<ModelRunner*>(&host), nullptr);
    for (RequestId id = 0; id < 2; ++id) {
      Request request;
      request.id = id;
      request.prompt = {5, 6, 7};
      request.num_choices = kChoices;
      request.params.temperature = 0.9f;
      request.params.seed = id;
      request.params.max_tokens = 3;
      request.params.ignore_eos = true;
      request.params.repetition_penalty = 1.2f;
      engine.add(std::move(request));
    }
    tokens[draws].resize(2 * kChoices);
    while (engine.has_work()) {
      for (const RequestOutput& output : engine.step().finished) {
        for (std::size_t i = 0; i < kChoices; ++i) {
          tokens[draws][output.id * kChoices + i] = output.choices.at(i).token_ids;
        }
      }
    }
    used_bytes[draws] = before - emulation::free_bytes(0);
  }
  EXPECT_EQ(tokens[0], tokens[1]);
  const std::size_t working_bytes = std::size_t{8} * 16 * model.config.vocab_size;
  EXPECT_LE(used_bytes[true], used_bytes[false] + working_bytes + (64 << 10));
}

// Recorded steps and others, in an engine that reads each step's tokens before it begins the next,
// and in one that does not.
TEST(CudaDrawTest, StepsBegunAheadGiveTheSameTokens) {
  const ModelFiles model = read_model_folder(std::string(BATCHMILL_TEST_DATA) + "/models/llama3");
  EngineOptions options;
  options.max_num_seqs = 12;
  options.max_num_batched_tokens = 90;
  options.max_context_tokens = model.config.max_context_tokens;
  options.eos_token_ids = {7, 8};
  std::array<std::vector<std::vector<TokenId>>, 2> tokens;
  for (const bool runs_ahead : {false, true}) {
    options.runs_ahead = runs_ahead;
    CudaModel cuda(model, 256);
    Engine engine(options, cuda.runner.get(), nullptr);
    tokens[runs_ahead].resize(44 * 3);
    for (Request& request : requests_of_every_kind()) {
      request.params.logprobs.reset();
      request.params.prompt_logprobs = false;
      request.params.max_tokens = 4 + static_cast<std::int32_t>(request.id % 17);
      engine.add(std::move(request));
    }
    while (engine.has_work()) {
      for (const RequestOutput& output : engine.step().finished) {
        EXPECT_EQ(output.error, "");
        for (std::size_t i = 0; i < output.choices.size(); ++i) {
          tokens[runs_ahead][output.id * 3 + i] = output.choices[i].token_ids;
        }
      }
    }
    const EngineStats stats = engine.stats();
    EXPECT_EQ(stats.num_free_blocks, stats.num_blocks);
    EXPECT_EQ(stats.num_preemptions, 0);
    EXPECT_GT(cuda.backend->num_replayed_steps(), 5);
    if (runs_ahead) {
      EXPECT_GT(stats.num_dropped_rows, 0);
      EXPECT_EQ(cuda.backend->num_steps_ahead, cuda.backend->num_steps - 1);
      // But for the first ones, for which memory grows.
      EXPECT_GT(cuda.backend->num_late_steps, cuda.backend->num_steps * 2 / 3);
    } else {
      EXPECT_EQ(stats.num_dropped_rows, 0);
      EXPECT_EQ(cuda.backend->num_steps_ahead, 0);
    }
  }
  EXPECT_EQ(tokens[0], tokens[1]);
}

// Whatever is wrong with recordings, steps are run.
TEST(CudaRecordingTest, StepsThatCannotBeRecordedAreSent) {
  using emulation::RecordingFault;
  const ModelFiles model = read_model_folder(std::string(BATCHMILL_TEST_DATA) + "/models/llama3");
  EngineOptions options;
  options.max_num_seqs = 4;
  options.max_num_batched_tokens = 64;
  options.max_context_tokens = model.config.max_context_tokens;
  std::vector<std::vector<TokenId>> expected;
  for (const RecordingFault fault :
       {RecordingFault::kNone, RecordingFault::kWork, RecordingFault::kEnd}) {
    emulation::set_recording_fault(fault);
    CudaModel cuda(model, 64);
    Engine engine(options, cuda.runner.get(), nullptr);
    for (RequestId id = 0; id < 3; ++id) {
      Request request;
      request.id = id;
      request.prompt = {4, 5, static_cast<TokenId>(6 + id)};
      request.params.temperature = 0.0f;
      request.params.max_tokens = 12;
      request.params.ignore_eos = true;
      engine.add(std::move(request));
    }
    std::vector<std::vector<TokenId>> tokens(3);
    while (engine.has_work()) {
      for (const RequestOutput& output : engine.step().finished) {
        tokens[output.id] = output.choices.at(0).token_ids;
      }
    }
    if (fault == RecordingFault::kNone) {
      expected = tokens;
      EXPECT_GT(cuda.backend->num_replayed_steps(), 3);
      EXPECT_EQ(cuda.backend->num_failed_recordings(), 0);
    } else {
      EXPECT_EQ(tokens, expected);
      EXPECT_EQ(cuda.backend->num_replayed_steps(), 0);
      EXPECT_EQ(cuda.backend->num_failed_recordings(), 1);  // of the one size, and not tried again
    }
  }
  emulation::set_recording_fault(RecordingFault::kNone);
}

// Rows come from files, which may end too early, and are made by several threads.
TEST(CudaMatrixTest, WhatASourceThrowsComesOut) {
  CudaBackend backend(0);
  for (const std::int32_t bad : {0, 7}) {
    const auto source = [&](std::int64_t row, float* values) {
      if (row == bad) throw std::runtime_error("no row " + std::to_string(bad));
      std::fill_n(values, 16, 1.0f);
    };
    try {
      backend.make_matrix(64, 16, source);
      ADD_FAILURE() << "nothing was thrown";
    } catch (const std::runtime_error& error) {
      EXPECT_EQ(error.what(), "no row " + std::to_string(bad));
    }
  }
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
