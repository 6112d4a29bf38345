#include "tools/bench_workloads.h"

#include <algorithm>
#include <chrono>
#include <random>

#include "engine/engine.h"
#include "tools/exit_code.h"

namespace batchmill {
namespace {

using Clock = std::chrono::steady_clock;
constexpr int kOwnTokens = 16;  // of a prompt that shares all others

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace

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
  transformer_ = std::make_unique<Transformer>(
      model.config(), std::make_unique<TimingBackend>(std::move(cpu), &sums_), std::move(weights),
      std::move(cache));
}

std::uint64_t BenchModel::run(int count, int prompt_tokens, int shared_tokens, int max_tokens,
                              Measured* prefill, Measured* decode) {
  Engine engine(engine_options_, transformer_.get(), nullptr);
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
    engine.add(std::move(request));
  }
  std::uint64_t hash = 14'695'981'039'346'656'037ull;
  while (engine.has_work()) {
    sums_ = {};
    const Clock::time_point start = Clock::now();
    const StepOutput step = engine.step();
    const double seconds = seconds_since(start);
    std::int64_t prefill_rows = 0;
    std::int64_t decode_rows = 0;
    for (const RequestWork& work : step.work) {
      prefill_rows += work.num_prefill_tokens;
      decode_rows += work.num_decode_tokens;
    }
    Measured* kind = decode_rows == 0 ? prefill : prefill_rows == 0 ? decode : nullptr;
    if (kind != nullptr) {
      kind->seconds += seconds;
      kind->tokens += prefill_rows + decode_rows;
      kind->sums.gemm.add(sums_.gemm);
      kind->sums.attention.add(sums_.attention);
    }
    for (const RequestOutput& output : step.finished) {
      for (const TokenId id : output.choices.front().token_ids) {
        hash ^= static_cast<std::uint64_t>(id) + (output.id << 32);
        hash *= 1'099'511'628'211ull;
      }
    }
  }
  return hash;
}

void BenchModel::run_round(const BenchFlags& flags, Workloads* workloads) {
  const int shared_tokens = std::max(flags.decode_prompt_tokens - kOwnTokens, 0);
  Measured prefill, decode, shared_decode, ignored;
  std::uint64_t hash = run(flags.prefill_prompts, flags.prefill_tokens, 0, 1, &prefill, &ignored);
  hash ^= run(flags.decode_sequences, flags.decode_prompt_tokens, 0, flags.decode_tokens, &ignored,
              &decode);
  hash ^= 3 * run(flags.decode_sequences, flags.decode_prompt_tokens, shared_tokens,
                  flags.decode_tokens, &ignored, &shared_decode);
  if (hash_ != 0 && hash != hash_) {
    throw ToolError(kExitUsage, "two runs of the same workload gave different tokens");
  }
  hash_ = hash;
  if (workloads == nullptr) return;
  workloads->prefill.push_back(prefill);
  workloads->decode.push_back(decode);
  workloads->shared_decode.push_back(shared_decode);
}

}  // namespace batchmill
