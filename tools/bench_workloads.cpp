#include "tools/bench_workloads.h"

#include <algorithm>
#include <chrono>
#include <random>

#include "tools/exit_code.h"

namespace batchmill {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace

void BenchModel::TimedRunner::forward(const Batch& batch, std::span<float> logits) {
  context_tokens = 0.0;
  for (const std::int32_t length : batch.context_lens) context_tokens += length;
  const Clock::time_point start = Clock::now();
  transformer_->forward(batch, logits);
  seconds += seconds_since(start);
}

BenchModel::BenchModel(const Model& model, const CpuOptions& options,
                       const EngineOptions& engine_options, std::int32_t num_blocks)
    : plan_(plan_cpu(model.config(), options)), engine_options_(engine_options), model_(model) {
  auto cpu = std::make_unique<CpuBackend>(plan_.dtype, plan_.threads, options.instruction_set,
                                          options.deterministic);
  cpu_ = cpu.get();
  Weights weights = load_weights(model.tensors(), model.config(), cpu.get());
  KvCacheShape shape;
  shape.num_layers = model.config().num_layers;
  shape.num_blocks = num_blocks;
  shape.block_size_tokens = options.block_size_tokens;
  shape.num_kv_heads = model.config().num_kv_heads;
  shape.head_dim = model.config().head_dim;
  shape.dtype = plan_.kv_dtype;
  if (model.config().latent) shape.latent_dim = model.config().latent->cached_dim();
  auto cache = cpu->make_kv_cache(shape);
  runner_ = std::make_unique<TimedRunner>(std::make_unique<Transformer>(
      model.config(),
      std::make_unique<TimingBackend>(std::move(cpu), model.config().vocab_size, &sums_),
      std::move(weights), std::move(cache)));
}

void BenchModel::add_prompts(Engine* engine, int count, int prompt_tokens, int shared_tokens,
                             int max_tokens) const {
  std::mt19937 random(kBenchSeed);
  std::uniform_int_distribution<TokenId> any_token(0, model_.config().vocab_size - 1);
  std::vector<TokenId> shared;
  for (int t = 0; t < shared_tokens; ++t) shared.push_back(any_token(random));
  for (int i = 0; i < count; ++i) {
    Request request;
    request.id = static_cast<RequestId>(i);
    request.prompt = shared;
    while (static_cast<int>(request.prompt.size()) < prompt_tokens) {
      request.prompt.push_back(any_token(random));
    }
    request.params.temperature = 0.0f;
    request.params.max_tokens = max_tokens;
    request.params.ignore_eos = true;
    engine->add(std::move(request));
  }
}

StepOutput& BenchModel::step(Engine* engine, Measured* measured) {
  sums_.clear();
  sums_.takes_times = measured->took_times;
  runner_->seconds = 0.0;
  const Clock::time_point start = Clock::now();
  StepOutput& output = engine->step();
  measured->seconds += seconds_since(start);
  measured->forward_seconds += runner_->seconds;
  measured->tokens += output.num_tokens;
  ++measured->steps;
  measured->sums.add(sums_);
  return output;
}

Measured BenchModel::prefill(int prompts, int prompt_tokens, bool take_times) {
  Engine engine(engine_options_, runner_.get(), nullptr);
  add_prompts(&engine, prompts, prompt_tokens, 0, 1);
  Measured measured;
  measured.took_times = take_times;
  std::vector<TokenId> tokens(static_cast<std::size_t>(prompts), kNoToken);
  while (engine.has_work()) {
    const StepOutput& output = step(&engine, &measured);
    measured.kv_tokens += runner_->context_tokens;
    for (const RequestOutput& finished : output.finished) {
      tokens[static_cast<std::size_t>(finished.id)] = finished.choices.front().token_ids.front();
    }
  }
  if (!first_tokens_.empty() && first_tokens_ != tokens) {
    throw ToolError(kExitUsage, "two runs of the same workload gave different tokens");
  }
  first_tokens_ = std::move(tokens);
  return measured;
}

std::vector<Measured> BenchModel::decode(const DecodeWorkload& work, int runs) {
  Engine engine(engine_options_, runner_.get(), nullptr);
  add_prompts(&engine, work.sequences, work.prompt_tokens, work.shared_tokens,
              (runs + 2) * work.tokens + work.prompt_tokens);
  Measured ignored;
  while (step(&engine, &ignored).num_tokens != work.sequences ||
         engine.stats().num_running_seqs != work.sequences) {
    if (!engine.has_work()) throw ToolError(kExitUsage, "the sequences ended before they decoded");
  }
  std::vector<Measured> measured(static_cast<std::size_t>(runs) + 2);
  measured.back().took_times = true;
  for (Measured& run : measured) {
    for (int i = 0; i < work.tokens; ++i) {
      step(&engine, &run);
      const EngineStats stats = engine.stats();
      run.held_slots =
          std::int64_t{stats.num_blocks - stats.num_free_blocks} * runner_->block_size_tokens();
      run.empty_slots = stats.num_empty_slots;
      run.kv_tokens += static_cast<double>(run.held_slots - run.empty_slots);
    }
  }
  measured.erase(measured.begin());
  return measured;
}

}  // namespace batchmill
