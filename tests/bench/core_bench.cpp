// What the engine does besides the model: blocks, prefixes, whole steps, sampling, text. Google
// Benchmark; one thread. The tokenizer's model is named by BATCHMILL_MODEL (default: the tiny one
// of the tests).
#include <benchmark/benchmark.h>

#include <cstdlib>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>

#include "engine/block_manager.h"
#include "engine/engine.h"
#include "engine/model.h"
#include "engine/sampler.h"
#include "tests/bench/model_shapes.h"

namespace batchmill::bench {
namespace {

void block_pool(benchmark::State& state) {
  BlockPool pool(4096);
  std::vector<BlockRef> blocks(64);
  for (auto _ : state) {
    for (BlockRef& block : blocks) block = pool.allocate();
    for (BlockRef& block : blocks) block.reset();
  }
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(blocks.size()));
}

std::vector<TokenId> random_prompt(std::mt19937* random, std::int32_t shared, std::int32_t size) {
  std::vector<TokenId> prompt(static_cast<std::size_t>(shared), 7);
  while (static_cast<std::int32_t>(prompt.size()) < size) {
    prompt.push_back(static_cast<TokenId>((*random)() % kVocabulary));
  }
  return prompt;
}

// Prompts of 900 tokens that share 500 enter a full tree, whose oldest leaves make room.
void prefix_tree(benchmark::State& state) {
  constexpr std::int32_t kPrompts = 512;
  BlockManager blocks(2048, kBlockSize);
  std::mt19937 random(kSeed);
  std::vector<std::vector<TokenId>> prompts;
  for (std::int32_t i = 0; i < kPrompts; ++i) prompts.push_back(random_prompt(&random, 500, 900));
  std::size_t next = 0;
  for (auto _ : state) {
    Sequence sequence;
    sequence.tokens = prompts[next++ % kPrompts];
    sequence.num_prompt_tokens = sequence.size();
    sequence.max_size = sequence.size() + 1;
    blocks.match(sequence);
    sequence.num_scheduled_tokens =
        blocks.extend(sequence, sequence.size() - sequence.num_computed_tokens);
    blocks.publish(sequence, /*with_tail=*/true);
    blocks.commit();
    blocks.release(sequence, /*keep_tail=*/false);
  }
  state.SetItemsProcessed(state.iterations());
}

// A device that computes nothing.
class NullRunner : public ModelRunner {
 public:
  explicit NullRunner(std::int32_t vocab_size) : vocab_size_(vocab_size) {}
  std::int32_t vocab_size() const override { return vocab_size_; }
  std::int32_t block_size_tokens() const override { return kBlockSize; }
  std::int32_t num_blocks() const override { return 1 << 16; }
  void forward(const Batch&, std::span<float>) override {}

 private:
  std::int32_t vocab_size_;
};

// One step of 64 decodes behind 900 tokens: schedule, batch, commit, greedy choice.
void engine_step(benchmark::State& state) {
  const auto vocab_size = static_cast<std::int32_t>(state.range(0));
  NullRunner runner(vocab_size);
  EngineOptions options;
  options.max_num_seqs = 64;
  options.max_context_tokens = 1 << 14;
  Engine engine(options, &runner, nullptr);
  std::mt19937 random(kSeed);
  RequestId next_id = 0;
  const auto add_requests = [&] {
    for (std::int32_t i = 0; i < 64; ++i) {
      Request request;
      request.id = next_id++;
      for (int t = 0; t < 900; ++t) {
        request.prompt.push_back(
            static_cast<TokenId>(random() % static_cast<unsigned>(vocab_size)));
      }
      request.params.temperature = 0.0f;
      request.params.ignore_eos = true;
      request.params.max_tokens = 1 << 13;
      engine.add(std::move(request));
    }
    while (engine.step().num_tokens != 64) {
    }
  };
  add_requests();
  for (auto _ : state) {
    if (engine.step().num_tokens == 64) continue;
    state.PauseTiming();  // the answers have ended
    while (engine.has_work()) engine.step();
    add_requests();
    state.ResumeTiming();
  }
}

void sampler(benchmark::State& state, SamplingParams params, std::int32_t vocab_size) {
  Sampler sampler(vocab_size);
  std::mt19937 random(kSeed);
  std::normal_distribution<float> normal(0.0f, 3.0f);
  std::vector<float> logits(static_cast<std::size_t>(vocab_size));
  for (float& logit : logits) logit = normal(random);
  SamplingContext context;
  context.params = &params;
  for (auto _ : state) benchmark::DoNotOptimize(sampler.sample(logits, context));
  state.SetBytesProcessed(state.iterations() * std::int64_t{vocab_size} * 4);
}

std::string text_of_licences() {
  std::ostringstream text;
  for (const char* name : {"GPL-3", "GPL-2", "Apache-2.0", "MPL-2.0"}) {
    text << std::ifstream(std::string("/usr/share/common-licenses/") + name).rdbuf();
  }
  return text.str();
}

std::shared_ptr<const Model> model() {
  const char* path = std::getenv("BATCHMILL_MODEL");
  static const std::shared_ptr<const Model> opened = Model::open(
      path != nullptr ? path : std::string(BATCHMILL_TEST_DATA) + "/models/llama3/model-q4_0.gguf");
  return opened;
}

void tokenizer_encode(benchmark::State& state) {
  const std::string text = text_of_licences();
  std::int64_t bytes = 0;
  for (auto _ : state) {
    // Requests of 4,000 bytes.
    for (std::size_t begin = 0; begin < text.size(); begin += 4000) {
      benchmark::DoNotOptimize(model()->tokenizer()->encode(text.substr(begin, 4000), false));
    }
    bytes += static_cast<std::int64_t>(text.size());
  }
  state.SetBytesProcessed(bytes);
}

void tokenizer_decode(benchmark::State& state) {
  const auto ids = model()->tokenizer()->encode(text_of_licences(), false);
  for (auto _ : state) {
    Detokenizer detokenizer(model()->tokenizer(), /*with_special=*/false);
    std::string text;
    for (const TokenId id : ids) detokenizer.append(id, &text);
    benchmark::DoNotOptimize(text);
  }
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(ids.size()));
}

BENCHMARK(block_pool)->Name("block pool, 64 blocks");
BENCHMARK(prefix_tree)->Name("prefix tree, a prompt of 900 that shares 500");
BENCHMARK(engine_step)
    ->Name("engine step, 64 greedy decodes, vocabulary")
    ->Arg(64)
    ->Arg(kVocabulary)
    ->Unit(benchmark::kMicrosecond);
BENCHMARK(tokenizer_encode)->Name("tokenizer, encode")->Unit(benchmark::kMillisecond);
BENCHMARK(tokenizer_decode)->Name("tokenizer, decode")->Unit(benchmark::kMillisecond);

void register_samplers() {
  SamplingParams greedy;
  greedy.temperature = 0.0f;
  SamplingParams top_k;
  top_k.top_k = 40;
  SamplingParams top_p;
  top_p.top_p = 0.9f;
  const std::pair<const char*, SamplingParams> kinds[] = {
      {"greedy", greedy}, {"temperature", {}}, {"top_k 40", top_k}, {"top_p 0.9", top_p}};
  for (const auto& [name, params] : kinds) {
    const std::string title = std::string("sampler, ") + name;
    benchmark::RegisterBenchmark(title.c_str(), [params = params](benchmark::State& state) {
      sampler(state, params, kVocabulary);
    })->Unit(benchmark::kMicrosecond);
  }
}

}  // namespace
}  // namespace batchmill::bench

int main(int argc, char** argv) {
  batchmill::bench::register_samplers();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
