// Makes an EncoderRunner on this machine's processors.
#pragma once

#include <memory>

#include "engine/cpu/cpu_runner.h"
#include "engine/encoder_runner.h"

namespace batchmill {

// Loads the weights. Of `options` dtype, kv_dtype, threads and instruction_set are used: keys and
// values of one layer at a time are kept, in memory that grows with the largest batch. Throws
// std::runtime_error if the model is no encoder, or it or an option does not suit this backend.
std::unique_ptr<EncoderRunner> make_cpu_encoder(const TensorSource& tensors,
                                                const ModelConfig& config,
                                                const CpuOptions& options);

}  // namespace batchmill
