#include "engine/cpu/cpu_runner.h"

#include <algorithm>
#include <limits>
#include <stdexcept>

#include "engine/cpu/cpu_backend.h"
#include "engine/cpu/cpu_memory.h"
#include "engine/cpu/kernel_tasks.h"
#include "engine/cpu/kv_layout.h"
#include "engine/model_size.h"
#include "engine/transformer.h"
#include "engine/weights.h"

namespace batchmill {
namespace {

constexpr std::int32_t kVectorWidth = 16;
constexpr std::int64_t kDefaultContexts = 64;

DType resolve(CpuDType dtype, DType automatic) {
  switch (dtype) {
    case CpuDType::kF32:
      return DType::kF32;
    case CpuDType::kBF16:
      return DType::kBF16;
    case CpuDType::kInt8:
      return DType::kI8;
    case CpuDType::kAuto:
      break;
  }
  return automatic;
}

void check_width(const char* what, std::int32_t value) {
  if (value % kVectorWidth == 0) return;
  throw std::runtime_error(std::string("the CPU backend needs ") + what +
                           " that is a multiple of " + std::to_string(kVectorWidth) + ", not " +
                           std::to_string(value));
}

// Tables in the activations' type, matrices in the weights', vectors in f32. Tied embeddings are
// there twice: a table to look up and a packed matrix to multiply.
std::int64_t loaded_bytes(const ModelConfig& config, DType weights, DType activations) {
  const ModelSize size = measure_model(config);
  return size.tables * dtype_bytes(activations) +
         (size.matrices + size.output) * dtype_bytes(weights) + size.vectors * 4;
}

class Runner : public CpuRunner {
 public:
  Runner(const ModelConfig& config, std::unique_ptr<CpuBackend> backend, Weights weights,
         std::unique_ptr<KvCache> cache)
      : backend_(*backend),
        transformer_(config, std::move(backend), std::move(weights), std::move(cache)) {}

  std::int32_t vocab_size() const override { return transformer_.vocab_size(); }
  std::int32_t block_size_tokens() const override { return transformer_.block_size_tokens(); }
  std::int32_t num_blocks() const override { return transformer_.num_blocks(); }
  void forward(const Batch& batch, std::span<float> logits) override {
    transformer_.forward(batch, logits);
  }
  LogitsScan* logits_scan() override { return transformer_.logits_scan(); }
  std::string describe() const override { return backend_.describe(); }
  std::vector<std::string> gemm_implementations() const override {
    return backend_.gemm_implementations();
  }

 private:
  const CpuBackend& backend_;  // the transformer's
  Transformer transformer_;
};

// int8 where bytes are multiplied faster than bf16: this processor's vectors do, tiles multiply
// bf16 as fast as is needed. Not with experts, because a small error chooses another expert, and
// not for encoders, whose vectors people compare.
DType automatic_dtype(const ModelConfig& config, InstructionSet set, DType widest) {
  const bool fast_bytes = set >= InstructionSet::kAvx512Vnni && !has_tile_products();
  return fast_bytes && !config.experts && !config.encoder ? DType::kI8 : widest;
}

// int8 beside int8 weights where bytes are multiplied fast. Keys with biases do not suffer: what
// those add to every key is not stored (HeadNorms::key_offset).
DType automatic_kv_dtype(const ModelConfig& config, const CpuOptions& options,
                         const CpuPlan& plan) {
  const bool fast_bytes = options.instruction_set >= InstructionSet::kAvx512Vnni;
  const bool fits = !config.latent && !config.encoder && config.head_dim <= kMaxHeadDim;
  return plan.dtype == DType::kI8 && fast_bytes && fits ? DType::kI8 : plan.activation_dtype;
}

}  // namespace

CpuPlan plan_cpu(const ModelConfig& config, const CpuOptions& options) {
  CpuPlan plan;
  const bool fast_bf16 = options.instruction_set == InstructionSet::kAvx512Bf16;
  const DType widest = fast_bf16 ? DType::kBF16 : DType::kF32;
  plan.dtype = resolve(options.dtype, automatic_dtype(config, options.instruction_set, widest));
  plan.activation_dtype = plan.dtype == DType::kI8 ? widest : plan.dtype;
  plan.kv_dtype = resolve(options.kv_dtype, automatic_kv_dtype(config, options, plan));
  plan.threads = options.threads > 0 ? options.threads : available_threads();
  plan.weight_bytes = loaded_bytes(config, plan.dtype, plan.activation_dtype);
  plan.available_bytes = available_memory_bytes();
  plan.kv_bytes_per_token = config.kv_bytes_per_token(dtype_bytes(plan.kv_dtype));

  // A fifth of what the weights leave stays free for everything else.
  plan.cache_room_bytes =
      std::max<std::int64_t>(plan.available_bytes - plan.weight_bytes, 0) / 5 * 4;
  if (plan.kv_bytes_per_token == 0) return plan;  // an encoder
  const std::int64_t block_bytes = plan.kv_bytes_per_token * options.block_size_tokens;
  std::int64_t blocks = options.num_blocks;
  if (blocks <= 0 && options.kv_cache_bytes > 0) blocks = options.kv_cache_bytes / block_bytes;
  if (options.num_blocks <= 0 && options.kv_cache_bytes <= 0) {
    const std::int64_t context_blocks =
        (std::int64_t{config.max_context_tokens} + options.block_size_tokens - 1) /
        options.block_size_tokens;
    blocks = std::min(plan.cache_room_bytes / block_bytes, kDefaultContexts * context_blocks);
  }
  // Slots are numbered by 32-bit integers.
  blocks = std::min<std::int64_t>(
      blocks, std::numeric_limits<std::int32_t>::max() / options.block_size_tokens);
  plan.num_blocks = static_cast<std::int32_t>(blocks);
  plan.kv_cache_bytes = blocks * block_bytes;
  return plan;
}

void check_cpu_shapes(const ModelConfig& config) {
  check_width("a hidden size", config.hidden_size);
  check_width("an intermediate size", config.intermediate_size);
  check_width("a head size", config.head_dim);
  if (config.latent) {
    check_width("a latent rank", config.latent->kv_lora_rank);
    check_width("a query rank", config.latent->q_lora_rank);
    check_width("a rotated part", config.latent->rope_dim);
    check_width("a value size", config.latent->value_dim);
  }
  if (config.experts) check_width("an expert's size", config.experts->intermediate_size);
}

std::unique_ptr<CpuRunner> make_cpu_runner(const TensorSource& tensors, const ModelConfig& config,
                                           const CpuOptions& options) {
  if (config.encoder) tensors.fail("a sentence encoder makes embeddings, no text");
  check_cpu_shapes(config);
  if (options.block_size_tokens < 1 || options.block_size_tokens % kKvGroupTokens != 0) {
    throw std::runtime_error("the block size must be a multiple of " +
                             std::to_string(kKvGroupTokens) + " tokens, not " +
                             std::to_string(options.block_size_tokens));
  }
  const CpuPlan plan = plan_cpu(config, options);
  if (plan.num_blocks < 1) {
    throw std::runtime_error(
        "no memory for a KV cache: " + std::to_string(plan.available_bytes >> 20) +
        " MiB available, " + std::to_string(plan.weight_bytes >> 20) + " MiB of weights");
  }
  auto backend = std::make_unique<CpuBackend>(plan.dtype, plan.threads, options.instruction_set,
                                              options.deterministic);
  Weights weights = load_weights(tensors, config, backend.get());
  KvCacheShape shape;
  shape.num_layers = config.num_layers;
  shape.num_blocks = plan.num_blocks;
  shape.block_size_tokens = options.block_size_tokens;
  shape.num_kv_heads = config.num_kv_heads;
  shape.head_dim = config.head_dim;
  shape.dtype = plan.kv_dtype;
  if (config.latent) shape.latent_dim = config.latent->cached_dim();
  auto cache = backend->make_kv_cache(shape);
  return std::make_unique<Runner>(config, std::move(backend), std::move(weights), std::move(cache));
}

}  // namespace batchmill
