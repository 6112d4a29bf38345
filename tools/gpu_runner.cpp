#include "tools/gpu_runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "cuda/attention_shapes.h"
#include "cuda/model_limits.h"
#include "engine/model_size.h"
#include "engine/scheduler.h"
#include "engine/transformer.h"
#include "engine/weights.h"

namespace batchmill {
namespace {

constexpr std::int64_t kDefaultContexts = 64;

// What a step of the largest size has besides the cache: a Transformer's activations and logits,
// and what the backend needs to attend and to draw.
std::int64_t step_bytes(const ModelConfig& config, const GpuOptions& options) {
  const auto padded = [](std::int64_t rows) { return (rows + 63) / 64 * 64; };
  const std::int64_t hidden = config.hidden_size;
  const std::int64_t heads = std::int64_t{config.num_heads} * config.head_dim;
  const std::int64_t kv_heads = std::int64_t{config.num_kv_heads} * config.head_dim;
  const std::int64_t inner = config.widest_mlp();
  const std::int64_t vocab = config.vocab_size;
  const bool has_branch = config.norm_placement == NormPlacement::kAround;
  const std::int64_t row = 4 * hidden * (has_branch ? 2 : 1) +
                           4 * static_cast<std::int64_t>(config.ropes.size()) * config.head_dim +
                           2 * (hidden + 2 * heads + 2 * kv_heads) +
                           2 * inner * (config.gated_mlp ? 3 : 2);
  // Log-probabilities of prompts need logits of all their rows.
  const std::int64_t logits_row = 4 * hidden + 2 * heads + 4 * vocab;
  const std::int64_t logits_rows =
      options.max_num_seqs +
      std::min(max_prompt_logits_rows(config.vocab_size), options.max_num_batched_tokens);
  const std::int64_t draws = 8 * vocab * draw_group_rows(options.max_num_seqs);
  const PartialShape partials{config.num_heads / config.num_kv_heads,
                              config.num_kv_heads,
                              config.head_dim,
                              config.max_context_tokens,
                              options.max_num_seqs,
                              options.max_num_batched_tokens};
  return row * padded(options.max_num_batched_tokens) + logits_row * padded(logits_rows) + draws +
         most_partial_bytes(partials);
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
  return config.kv_bytes_per_token(dtype_bytes(options.kv_dtype)) * options.block_size_tokens;
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
    refuse(fmt::format("hidden and intermediate sizes that are no multiple of 16 ({} and {})",
                       config.hidden_size, config.intermediate_size));
  }
  if (config.hidden_size > kMaxNormCols) {
    refuse(fmt::format("hidden sizes above {} ({})", kMaxNormCols, config.hidden_size));
  }
  if (!is_attention_dim(config.head_dim)) {
    refuse(fmt::format("heads of {} (16, 32, 64, 128 or 256)", config.head_dim));
  }
  if (const int group = config.num_heads / config.num_kv_heads; group > kMaxGroup) {
    refuse(fmt::format("more than {} query heads to a kv head ({})", kMaxGroup, group));
  }
}

void check_gpu_blocks(std::int32_t block_size_tokens, DType kv_dtype) {
  if (!std::has_single_bit(static_cast<std::uint32_t>(block_size_tokens))) {
    throw std::runtime_error(fmt::format(
        "on GPUs [engine] block_size_tokens is a power of two, not {}", block_size_tokens));
  }
  if (kv_dtype != DType::kBF16 && block_size_tokens < kFewestByteBlockTokens) {
    throw std::runtime_error(
        fmt::format("on GPUs [engine] block_size_tokens is {} or more with KV caches in {}, not {}",
                    kFewestByteBlockTokens, dtype_name(kv_dtype), block_size_tokens));
  }
}

void check_gpu_device(const ModelConfig& config, DType kv_dtype, const CudaDeviceFacts& device) {
  const std::int32_t needed = least_attention_shared_bytes(config.head_dim, kv_dtype);
  if (needed <= device.shared_bytes) return;
  const auto kib = [](std::int32_t bytes) { return (bytes + 1023) >> 10; };
  throw std::runtime_error(fmt::format(
      "attention over heads of {} in {} needs {} KiB of shared memory, of which {} gives a block "
      "at most {}",
      config.head_dim, dtype_name(kv_dtype), kib(needed), device.name, kib(device.shared_bytes)));
}

GpuClaim gpu_claim(const ModelConfig& config, const GpuOptions& options) {
  return {weight_bytes(config) + kGpuRuntimeBytes + step_bytes(config, options),
          options.kv_cache_bytes > 0 ? options.kv_cache_bytes : most_cache_bytes(config, options)};
}

GpuClaim loaded_gpu_claim(const ModelConfig& config, const GpuOptions& options) {
  return {kGpuRuntimeBytes + step_bytes(config, options), 0};
}

GpuMemoryPlan plan_gpu_memory(const ModelConfig& config, const GpuOptions& options,
                              std::int64_t free_bytes, bool holds_weights) {
  GpuMemoryPlan plan;
  plan.weight_bytes = weight_bytes(config);
  plan.step_bytes = kGpuRuntimeBytes + step_bytes(config, options);
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
  std::int64_t most = std::numeric_limits<std::int32_t>::max() / options.block_size_tokens;
  if (options.kv_dtype != DType::kBF16) {
    most = std::min(most, kLargestByteLayer / (plan.block_bytes / config.num_layers));
  }
  plan.num_blocks =
      static_cast<std::int32_t>(std::clamp<std::int64_t>(cache_bytes / plan.block_bytes, 1, most));
  return plan;
}

std::unique_ptr<ModelRunner> make_gpu_runner(const CudaPlugin& plugin, const Model& model,
                                             const GpuOptions& options) {
  const ModelConfig& config = model.config();
  check_gpu_model(config);
  check_gpu_blocks(options.block_size_tokens, options.kv_dtype);
  check_gpu_device(config, options.kv_dtype, plugin.describe(options.device));
  const auto free_bytes = [&] {
    return static_cast<std::int64_t>(plugin.describe(options.device).free_bytes);
  };
  // For people, if somebody else is faster.
  const char* what = "weights";
  std::int64_t free_before = free_bytes();
  std::int64_t needed_bytes = plan_gpu_memory(config, options, free_before, false).weight_bytes;
  try {
    std::unique_ptr<Backend> backend = plugin.create(options.device);
    Weights weights = load_weights(model.tensors(), config, backend.get());
    what = "KV cache";
    free_before = free_bytes();
    KvCacheShape shape;
    shape.num_layers = config.num_layers;
    shape.num_blocks = plan_gpu_memory(config, options, free_before, true).num_blocks;
    shape.block_size_tokens = options.block_size_tokens;
    shape.num_kv_heads = config.num_kv_heads;
    shape.head_dim = config.head_dim;
    shape.dtype = options.kv_dtype;
    needed_bytes = static_cast<std::int64_t>(shape.bytes());
    auto cache = backend->make_kv_cache(shape);
    return std::make_unique<Transformer>(config, std::move(backend), std::move(weights),
                                         std::move(cache));
  } catch (const std::bad_alloc&) {
    throw std::runtime_error(fmt::format(
        "the memory of the device ran out while the model was loaded: its {} needed {}, {} were "
        "free before that, and others have taken some since",
        what, mib(needed_bytes), mib(free_before)));
  }
}

}  // namespace batchmill
