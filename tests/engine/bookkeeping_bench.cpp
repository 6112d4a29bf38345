// The engine's own time per step: 64 sequences decode on a device that computes nothing. Prints one
// JSON line per case; best and median of five runs after one warm-up, in CPU time: one thread
// works.
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <new>
#include <random>
#include <vector>

#include "engine/engine.h"

namespace {

std::atomic<std::int64_t> num_allocations{0};

}  // namespace

void* operator new(std::size_t size) {
  ++num_allocations;
  if (void* memory = std::malloc(size)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace batchmill {
namespace {

constexpr std::int32_t kNumSeqs = 64;
constexpr std::int32_t kPromptTokens = 900;

// Gives the same logits every step.
class NullRunner : public ModelRunner {
 public:
  explicit NullRunner(std::int32_t vocab_size) : row_(static_cast<std::size_t>(vocab_size)) {
    std::mt19937 random(1);
    std::normal_distribution<float> normal(0.0f, 3.0f);
    for (float& x : row_) x = normal(random);
  }
  std::int32_t vocab_size() const override { return static_cast<std::int32_t>(row_.size()); }
  std::int32_t block_size_tokens() const override { return 16; }
  std::int32_t num_blocks() const override { return 8192; }
  void forward(const Batch&, std::span<float> logits) override {
    if (num_filled_ >= logits.size()) return;  // the engine keeps its buffer
    for (std::size_t i = 0; i < logits.size(); ++i) logits[i] = row_[i % row_.size()];
    num_filled_ = logits.size();
  }

 private:
  std::vector<float> row_;
  std::size_t num_filled_ = 0;
};

struct Run {
  double step_us;
  double allocations;  // per step
};

Run measure(std::int32_t vocab_size, std::int32_t num_steps, const SamplingParams& params) {
  NullRunner runner(vocab_size);
  EngineOptions options;
  options.max_num_seqs = kNumSeqs;
  Engine engine(options, &runner, nullptr);
  std::mt19937 random(2);
  for (RequestId id = 0; id < kNumSeqs; ++id) {
    Request request;
    request.id = id;
    for (std::int32_t i = 0; i < kPromptTokens; ++i) {
      request.prompt.push_back(static_cast<TokenId>(random() % 50));
    }
    request.params = params;
    request.params.ignore_eos = true;
    request.params.max_tokens = num_steps + 100;
    request.params.seed = id;
    engine.add(std::move(request));
  }
  while (engine.step().num_tokens != kNumSeqs) {
  }
  const std::int64_t allocations = num_allocations;
  const std::clock_t begin = std::clock();
  for (std::int32_t i = 0; i < num_steps; ++i) {
    if (engine.step().num_tokens != kNumSeqs) std::abort();
  }
  const double elapsed_us = 1e6 * static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
  return {elapsed_us / num_steps, static_cast<double>(num_allocations - allocations) / num_steps};
}

void report(const char* name, std::int32_t vocab_size, const SamplingParams& params) {
  const std::int32_t num_steps = vocab_size < 1'000 ? 500 : 1'000'000 / vocab_size;
  measure(vocab_size, num_steps, params);
  std::vector<Run> runs;
  for (int i = 0; i < 5; ++i) runs.push_back(measure(vocab_size, num_steps, params));
  std::ranges::sort(runs, {}, &Run::step_us);
  std::printf(
      "{\"case\": \"%s\", \"seqs\": %d, \"prompt_tokens\": %d, \"vocab\": %d, "
      "\"step_us_best\": %.1f, \"step_us_median\": %.1f, \"allocations_per_step\": %.1f}\n",
      name, kNumSeqs, kPromptTokens, vocab_size, runs[0].step_us, runs[2].step_us,
      runs[2].allocations);
  std::fflush(stdout);
}

}  // namespace
}  // namespace batchmill

int main() {
  using batchmill::report;
  batchmill::SamplingParams greedy;
  greedy.temperature = 0.0f;
  batchmill::SamplingParams warm;
  batchmill::SamplingParams top_k;
  top_k.top_k = 40;
  batchmill::SamplingParams top_p;
  top_p.top_p = 0.9f;
  batchmill::SamplingParams both = top_k;
  both.top_p = 0.9f;
  batchmill::SamplingParams logprobs;
  logprobs.temperature = 0.0f;
  logprobs.logprobs = 5;
  report("bookkeeping", 64, greedy);
  for (const int vocab_size : {49'152, 256'000}) {
    report("greedy", vocab_size, greedy);
    report("temperature", vocab_size, warm);
    report("top_k 40", vocab_size, top_k);
    report("top_p 0.9", vocab_size, top_p);
    report("top_k 40, top_p 0.9", vocab_size, both);
    report("greedy, 5 logprobs", vocab_size, logprobs);
  }
}
