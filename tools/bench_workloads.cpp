#include "tools/bench_workloads.h"

#include <algorithm>
#include <chrono>
#include <random>
#include <utility>

#include "tools/exit_code.h"

namespace batchmill {

BenchModel::BenchModel(const ModelConfig& config, const EngineOptions& engine_options,
                       std::unique_ptr<ModelRunner> runner)
    : vocab_size_(config.vocab_size), engine_options_(engine_options), runner_(std::move(runner)) {}

void BenchModel::add_prompts(Engine* engine, int count, int prompt_tokens, int shared_tokens,
                             int max_tokens) const {
  std::mt19937 random(kBenchSeed);
  std::uniform_int_distribution<TokenId> any_token(0, vocab_size_ - 1);
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

StepOutput& BenchModel::step(Engine* engine, Measured* run) {
  using Clock = std::chrono::steady_clock;
  before_step(*run);
  const Clock::time_point start = Clock::now();
  StepOutput& output = engine->step();
  run->seconds += std::chrono::duration<double>(Clock::now() - start).count();
  run->tokens += output.num_tokens;
  ++run->steps;
  after_step(run);
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
      const double before = run.kv_tokens;
      step(&engine, &run);
      const EngineStats stats = engine.stats();
      run.held_slots =
          std::int64_t{stats.num_blocks - stats.num_free_blocks} * runner_->block_size_tokens();
      run.empty_slots = stats.num_empty_slots;
      run.kv_tokens = before + static_cast<double>(run.held_slots - run.empty_slots);
    }
  }
  measured.erase(measured.begin());
  return measured;
}

DecodeWorkload shared_work(const BenchFlags& flags) {
  return {flags.decode_sequences, flags.decode_prompt_tokens,
          std::max(flags.decode_prompt_tokens - kOwnTokens, 0), flags.decode_tokens};
}

std::vector<Measured> measure_prefill(BenchModel* model, const BenchFlags& flags, int runs) {
  const auto prefill = [&](bool take_times) {
    return model->prefill(flags.prefill_prompts, flags.prefill_tokens, take_times);
  };
  prefill(false);
  std::vector<Measured> measured;
  for (int i = 0; i < runs; ++i) measured.push_back(prefill(false));
  measured.push_back(prefill(true));
  return measured;
}

Workloads measure(BenchModel* model, const BenchFlags& flags) {
  Workloads workloads;
  workloads.prefill = measure_prefill(model, flags, flags.runs);
  workloads.single_decode =
      model->decode({1, flags.decode_prompt_tokens, 0, 2 * flags.decode_tokens}, flags.runs);
  workloads.decode = model->decode(
      {flags.decode_sequences, flags.decode_prompt_tokens, 0, flags.decode_tokens}, flags.runs);
  workloads.shared_decode = model->decode(shared_work(flags), flags.runs);
  return workloads;
}

std::int32_t blocks_needed(const BenchFlags& flags, const EngineOptions& options,
                           std::int32_t block_size_tokens) {
  const auto blocks = [&](int sequences, int tokens) {
    return sequences * ((tokens + options.generation_reserve_tokens) / block_size_tokens + 2);
  };
  const int decoded =
      2 * (flags.runs + 2) * flags.decode_tokens +
      flags.decode_sequences * flags.decode_prompt_tokens / options.max_num_batched_tokens;
  const std::int32_t most =
      std::max(blocks(flags.prefill_prompts, flags.prefill_tokens),
               blocks(flags.decode_sequences, flags.decode_prompt_tokens + decoded));
  return most + most / 50 + 8;
}

void fit_to_context(BenchFlags* flags, std::int32_t context_tokens) {
  flags->prefill_tokens = std::min(flags->prefill_tokens, context_tokens - 1);
  flags->decode_prompt_tokens = std::min(flags->decode_prompt_tokens, context_tokens / 2);
  flags->decode_tokens =
      std::max(1, std::min(flags->decode_tokens, context_tokens / 8 / (flags->runs + 2)));
}

}  // namespace batchmill
