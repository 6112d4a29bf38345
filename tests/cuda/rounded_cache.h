// A model on the CPU in float32 whose keys and values are rounded as a KV cache in int8 or FP8 on
// CUDA rounds them: by the definition in cuda/kv_bytes.h, in plain loops. Its distance from the
// same model with nothing rounded is what such a cache costs.
#pragma once

#include <cstdint>
#include <memory>

#include "engine/model_config.h"
#include "engine/model_runner.h"
#include "engine/tensor.h"
#include "engine/tensor_source.h"

namespace batchmill::testing {

// `kv`: kI8, kF8, or kF32, which rounds nothing. Blocks are of 16 tokens.
std::unique_ptr<ModelRunner> make_rounded_runner(const TensorSource& tensors,
                                                 const ModelConfig& config, DType kv,
                                                 std::int32_t num_blocks);

}  // namespace batchmill::testing
