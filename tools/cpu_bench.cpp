#include "tools/cpu_bench.h"

#include <chrono>
#include <utility>

#include "engine/transformer.h"
#include "engine/weights.h"

namespace batchmill {

// The model as the engine sees it, with a stopwatch.
class CpuBench::TimedRunner : public ModelRunner {
 public:
  explicit TimedRunner(std::unique_ptr<Transformer> transformer)
      : transformer_(std::move(transformer)) {}

  std::int32_t vocab_size() const override { return transformer_->vocab_size(); }
  std::int32_t block_size_tokens() const override { return transformer_->block_size_tokens(); }
  std::int32_t num_blocks() const override { return transformer_->num_blocks(); }
  void forward(const Batch& batch, std::span<float> logits) override {
    using Clock = std::chrono::steady_clock;
    context_tokens = 0.0;
    for (const std::int32_t length : batch.context_lens) context_tokens += length;
    const Clock::time_point start = Clock::now();
    transformer_->forward(batch, logits);
    seconds += std::chrono::duration<double>(Clock::now() - start).count();
  }
  LogitsScan* logits_scan() override { return transformer_->logits_scan(); }

  double seconds = 0.0;
  double context_tokens = 0.0;  // Σ of the step's sequences

 private:
  std::unique_ptr<Transformer> transformer_;
};

std::unique_ptr<CpuBench::Parts> CpuBench::load(const Model& model, const CpuOptions& options,
                                                std::int32_t num_blocks) {
  const ModelConfig& config = model.config();
  auto parts = std::make_unique<Parts>();
  parts->plan = plan_cpu(config, options);
  auto cpu = std::make_unique<CpuBackend>(parts->plan.dtype, parts->plan.threads,
                                          options.instruction_set, options.deterministic);
  parts->cpu = cpu.get();
  Weights weights = load_weights(model.tensors(), config, cpu.get());
  KvCacheShape shape;
  shape.num_layers = config.num_layers;
  shape.num_blocks = num_blocks;
  shape.block_size_tokens = options.block_size_tokens;
  shape.num_kv_heads = config.num_kv_heads;
  shape.head_dim = config.head_dim;
  shape.dtype = parts->plan.kv_dtype;
  if (config.latent) shape.latent_dim = config.latent->cached_dim();
  auto cache = cpu->make_kv_cache(shape);
  auto runner = std::make_unique<TimedRunner>(std::make_unique<Transformer>(
      config, std::make_unique<TimingBackend>(std::move(cpu), config.vocab_size, &parts->sums),
      std::move(weights), std::move(cache)));
  parts->runner = runner.get();
  parts->owned_runner = std::move(runner);
  return parts;
}

CpuBench::CpuBench(const Model& model, const CpuOptions& options,
                   const EngineOptions& engine_options, std::int32_t num_blocks)
    : CpuBench(load(model, options, num_blocks), model, engine_options) {}

CpuBench::CpuBench(std::unique_ptr<Parts> parts, const Model& model,
                   const EngineOptions& engine_options)
    : BenchModel(model.config(), engine_options, std::move(parts->owned_runner)),
      parts_(std::move(parts)) {}

void CpuBench::before_step(const Measured& run) {
  parts_->sums.clear();
  parts_->sums.takes_times = run.took_times;
  parts_->runner->seconds = 0.0;
}

void CpuBench::after_step(Measured* run) {
  run->forward_seconds += parts_->runner->seconds;
  run->kv_tokens += parts_->runner->context_tokens;
  run->sums.add(parts_->sums);
}

}  // namespace batchmill
