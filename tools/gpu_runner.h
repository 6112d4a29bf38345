// Makes a ModelRunner on a Backend of the CUDA plugin, with a KV cache of what is free there.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "cuda/plugin_loader.h"
#include "engine/model.h"
#include "engine/model_runner.h"

namespace batchmill {

// What is left for the runtime: kernels, graphs, lists of steps, a fragmented rest.
inline constexpr std::int64_t kGpuRuntimeBytes = 256 << 20;

// What another model of the same device has not taken of its memory yet.
struct GpuClaim {
  std::int64_t fixed_bytes = 0;  // weights and steps
  std::int64_t cache_bytes = 0;  // what is configured for its KV cache, or the most it can use
};

// What is configured, as far as a device's memory depends on it.
struct GpuOptions {
  std::int32_t device = 0;
  std::int32_t block_size_tokens = 16;
  DType kv_dtype = DType::kBF16;  // or int8, FP8
  std::int64_t kv_cache_bytes = 0;  // 0: an equal share of what is free
  std::vector<GpuClaim> others;
  std::int32_t max_num_seqs = 64;  // of a step; sizes what a step needs besides the cache
  std::int32_t max_num_batched_tokens = 2048;
};

// What a model needs of a device's memory.
struct GpuMemoryPlan {
  std::int64_t weight_bytes = 0;
  std::int64_t step_bytes = 0;  // of the largest step, and what the runtime takes for itself
  std::int64_t block_bytes = 0;  // of the KV cache
  std::int32_t num_blocks = 0;
};

// Throws std::runtime_error if the model is none that the CUDA backend runs.
void check_gpu_model(const ModelConfig& config);
// Likewise if its KV cache cannot have blocks of this size there.
void check_gpu_blocks(std::int32_t block_size_tokens, DType kv_dtype);
// Likewise if the device lacks what the kernels need for it.
void check_gpu_device(const ModelConfig& config, DType kv_dtype, const CudaDeviceFacts& device);

// What the model will need, and what it needs besides its weights once these are loaded.
GpuClaim gpu_claim(const ModelConfig& config, const GpuOptions& options);
GpuClaim loaded_gpu_claim(const ModelConfig& config, const GpuOptions& options);

// Throws std::runtime_error, with all numbers, if `free_bytes` are too few. `holds_weights`: they
// are on the device already.
GpuMemoryPlan plan_gpu_memory(const ModelConfig& config, const GpuOptions& options,
                              std::int64_t free_bytes, bool holds_weights);

// Loads the weights. Throws std::runtime_error.
std::unique_ptr<ModelRunner> make_gpu_runner(const CudaPlugin& plugin, const Model& model,
                                             const GpuOptions& options);

}  // namespace batchmill
