#include "tools/gpu_runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <stdexcept>

#include "engine/transformer.h"
#include "engine/weights.h"

namespace batchmill {
namespace {

constexpr std::int64_t kDefaultContexts = 64;
constexpr std::int64_t kRuntimeBytes = 256 << 20;  // kernels, graphs, a fragmented rest

// What a step of the largest size has besides the cache.
std::int64_t step_bytes(const ModelConfig& config, const GpuOptions& options) {
  const std::int64_t qkv =
      std::int64_t{config.num_heads + 2 * config.num_kv_heads} * config.head_dim;
  const std::int64_t row = 4 * 2 * std::int64_t{config.hidden_size} +
                           2 * (std::int64_t{config.hidden_size} + qkv +
                                std::int64_t{config.num_heads} * config.head_dim +
                                3 * std::int64_t{config.widest_mlp()}) +
                           4 * std::int64_t{config.head_dim} * 2;
  const std::int64_t logits = 4 * (std::int64_t{config.vocab_size} + config.hidden_size);
  return row * options.max_num_batched_tokens + logits * options.max_num_seqs;
}

std::int32_t blocks_that_fit(const ModelConfig& config, const GpuOptions& options,
                             std::int64_t free_bytes) {
  const std::int64_t block_bytes =
      config.kv_bytes_per_token(dtype_bytes(DType::kBF16)) * options.block_size_tokens;
  std::int64_t blocks = options.kv_cache_bytes / block_bytes;
  if (options.kv_cache_bytes == 0) {
    const std::int64_t room =
        (free_bytes - kRuntimeBytes - step_bytes(config, options)) / options.sharers;
    const std::int64_t context_blocks =
        (std::int64_t{config.max_context_tokens} + options.block_size_tokens - 1) /
        options.block_size_tokens;
    blocks =
        std::min(std::max<std::int64_t>(room, 0) / block_bytes, kDefaultContexts * context_blocks);
  }
  // Slots are numbered by 32-bit integers.
  return static_cast<std::int32_t>(std::min<std::int64_t>(
      blocks, std::numeric_limits<std::int32_t>::max() / options.block_size_tokens));
}

}  // namespace

void check_gpu_model(const ModelConfig& config) {
  const auto refuse = [](const std::string& what) {
    throw std::runtime_error("the CUDA backend does not run " + what);
  };
  if (config.encoder) refuse("models that make embeddings");
  if (config.latent) refuse("latent attention");
  if (config.experts) refuse("mixtures of experts");
  if (config.hidden_size % 16 != 0 || config.intermediate_size % 16 != 0) {
    refuse("hidden and intermediate sizes that are no multiple of 16");
  }
}

std::unique_ptr<ModelRunner> make_gpu_runner(const CudaPlugin& plugin, const Model& model,
                                             const GpuOptions& options) {
  const ModelConfig& config = model.config();
  check_gpu_model(config);
  std::unique_ptr<Backend> backend = plugin.create(options.device);
  Weights weights = load_weights(model.tensors(), config, backend.get());
  const auto free_bytes = static_cast<std::int64_t>(plugin.describe(options.device).free_bytes);
  KvCacheShape shape;
  shape.num_layers = config.num_layers;
  shape.num_blocks = blocks_that_fit(config, options, free_bytes);
  shape.block_size_tokens = options.block_size_tokens;
  shape.num_kv_heads = config.num_kv_heads;
  shape.head_dim = config.head_dim;
  shape.dtype = DType::kBF16;
  if (shape.num_blocks < 1) {
    throw std::runtime_error(
        fmt::format("no memory for a KV cache: {} MiB of the device are free beside the weights, a "
                    "step needs {} MiB",
                    free_bytes >> 20, (kRuntimeBytes + step_bytes(config, options)) >> 20));
  }
  auto cache = backend->make_kv_cache(shape);
  return std::make_unique<Transformer>(config, std::move(backend), std::move(weights),
                                       std::move(cache));
}

}  // namespace batchmill
