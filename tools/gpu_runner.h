// Makes a ModelRunner on a Backend of the CUDA plugin, with a KV cache of what is free there.
#pragma once

#include <cstdint>
#include <memory>

#include "cuda/plugin_loader.h"
#include "engine/model.h"
#include "engine/model_runner.h"

namespace batchmill {

struct GpuOptions {
  std::int32_t device = 0;
  std::int32_t block_size_tokens = 32;
  std::int64_t kv_cache_bytes = 0;  // 0: what is free, divided by `sharers`
  std::int32_t sharers = 1;  // models that want memory of the device, this one included
  std::int32_t max_num_seqs = 256;  // of a step; sizes what a step needs besides the cache
  std::int32_t max_num_batched_tokens = 2048;
};

// Throws std::runtime_error if the model is none that the CUDA backend runs.
void check_gpu_model(const ModelConfig& config);

// Loads the weights. Throws std::runtime_error or std::bad_alloc.
std::unique_ptr<ModelRunner> make_gpu_runner(const CudaPlugin& plugin, const Model& model,
                                             const GpuOptions& options);

}  // namespace batchmill
