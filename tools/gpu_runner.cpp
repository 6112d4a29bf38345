#include "tools/gpu_runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "engine/model_size.h"
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
  // Logits, and what drawing from them may need.
  const std::int64_t logits = 12 * std::int64_t{config.vocab_size} + 4 * config.hidden_size;
  return row * options.max_num_batched_tokens + logits * options.max_num_seqs;
}

// With digits in groups of three, rounded up.
std::string mib(std::int64_t bytes) {
  std::string digits = std::to_string((bytes + (1 << 20) - 1) >> 20);
  for (auto place = static_cast<std::int64_t>(digits.size()) - 3; place > 0; place -= 3) {
    digits.insert(static_cast<std::size_t>(place), ",");
  }
  return digits + " MiB";
}

std::int64_t weight_bytes(const ModelConfig& config) {
  const ModelSize size = measure_model(config);
  return 2 * (size.tables + size.matrices + size.output) + 4 * size.vectors;
}

std::int64_t block_bytes(const ModelConfig& config, const GpuOptions& options) {
  return config.kv_bytes_per_token(dtype_bytes(DType::kBF16)) * options.block_size_tokens;
}

// More than that many contexts would not be used.
std::int64_t most_cache_bytes(const ModelConfig& config, const GpuOptions& options) {
  const std::int64_t context_blocks =
      (std::int64_t{config.max_context_tokens} + options.block_size_tokens - 1) /
      options.block_size_tokens;
  return kDefaultContexts * context_blocks * block_bytes(config, options);
}

// What one gets of `room` if all who want some get the same and nobody more than he can use.
std::int64_t share_of(std::int64_t room, std::int64_t own, std::vector<std::int64_t> others) {
  std::sort(others.begin(), others.end());
  auto sharers = static_cast<std::int64_t>(others.size()) + 1;
  for (const std::int64_t other : others) {
    if (other >= room / sharers) break;
    room -= other;
    --sharers;
  }
  return std::min(own, room / sharers);
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

GpuClaim gpu_claim(const ModelConfig& config, const GpuOptions& options) {
  return {weight_bytes(config) + kRuntimeBytes + step_bytes(config, options),
          options.kv_cache_bytes > 0 ? options.kv_cache_bytes : most_cache_bytes(config, options)};
}

GpuClaim loaded_gpu_claim(const ModelConfig& config, const GpuOptions& options) {
  return {kRuntimeBytes + step_bytes(config, options), 0};
}

GpuMemoryPlan plan_gpu_memory(const ModelConfig& config, const GpuOptions& options,
                              std::int64_t free_bytes, bool holds_weights) {
  GpuMemoryPlan plan;
  plan.weight_bytes = weight_bytes(config);
  plan.step_bytes = kRuntimeBytes + step_bytes(config, options);
  plan.block_bytes = block_bytes(config, options);
  std::int64_t others_bytes = 0;
  std::vector<std::int64_t> caches;
  for (const GpuClaim& other : options.others) {
    others_bytes += other.fixed_bytes;
    if (other.cache_bytes > 0) caches.push_back(other.cache_bytes);
  }
  const std::int64_t room =
      free_bytes - others_bytes - plan.step_bytes - (holds_weights ? 0 : plan.weight_bytes);
  const std::string needs = fmt::format(
      "{} are free{}, {}and the model needs {}{} for steps of {} tokens", mib(free_bytes),
      holds_weights ? " beside its weights" : "",
      others_bytes == 0
          ? ""
          : fmt::format("other models of the device need {} of them, ", mib(others_bytes)),
      holds_weights ? "" : fmt::format("{} for weights, ", mib(plan.weight_bytes)),
      mib(plan.step_bytes), options.max_num_batched_tokens);
  // Of kv_cache_bytes each model has its own.
  const std::int64_t offered_bytes =
      options.kv_cache_bytes > 0
          ? room / (static_cast<std::int64_t>(caches.size()) + 1)
          : share_of(room, most_cache_bytes(config, options), std::move(caches));
  if (offered_bytes < plan.block_bytes) {
    throw std::runtime_error(fmt::format(
        "not enough memory: {}, besides its KV cache of {} bytes a token; a lower [engine] "
        "max_num_batched_tokens makes steps smaller",
        needs, plan.block_bytes / options.block_size_tokens));
  }
  if (options.kv_cache_bytes > offered_bytes && !holds_weights) {
    throw std::runtime_error(
        fmt::format("not enough memory for a KV cache of {}: {}; [engine] kv_cache_bytes can be at "
                    "most {}, and 0 takes what is free",
                    mib(options.kv_cache_bytes), needs, offered_bytes));
  }
  const std::int64_t cache_bytes =
      options.kv_cache_bytes > 0 ? std::min(options.kv_cache_bytes, offered_bytes) : offered_bytes;
  // Slots are numbered by 32-bit integers.
  plan.num_blocks = static_cast<std::int32_t>(std::clamp<std::int64_t>(
      cache_bytes / plan.block_bytes, 1,
      std::numeric_limits<std::int32_t>::max() / options.block_size_tokens));
  return plan;
}

std::unique_ptr<ModelRunner> make_gpu_runner(const CudaPlugin& plugin, const Model& model,
                                             const GpuOptions& options) {
  const ModelConfig& config = model.config();
  check_gpu_model(config);
  const auto free_bytes = [&] {
    return static_cast<std::int64_t>(plugin.describe(options.device).free_bytes);
  };
  plan_gpu_memory(config, options, free_bytes(), false);
  try {
    std::unique_ptr<Backend> backend = plugin.create(options.device);
    Weights weights = load_weights(model.tensors(), config, backend.get());
    KvCacheShape shape;
    shape.num_layers = config.num_layers;
    shape.num_blocks = plan_gpu_memory(config, options, free_bytes(), true).num_blocks;
    shape.block_size_tokens = options.block_size_tokens;
    shape.num_kv_heads = config.num_kv_heads;
    shape.head_dim = config.head_dim;
    shape.dtype = DType::kBF16;
    auto cache = backend->make_kv_cache(shape);
    return std::make_unique<Transformer>(config, std::move(backend), std::move(weights),
                                         std::move(cache));
  } catch (const std::bad_alloc&) {
    // Somebody else was faster.
    throw std::runtime_error(
        fmt::format("the memory of the device ran out while the model was loaded, {} are left",
                    mib(free_bytes())));
  }
}

}  // namespace batchmill
