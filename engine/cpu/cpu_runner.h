// Makes a ModelRunner on this machine's processors, and tells what fits.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/cpu/instruction_set.h"
#include "engine/model.h"
#include "engine/model_config.h"
#include "engine/model_runner.h"
#include "engine/tensor.h"

namespace batchmill {

class TensorSource;

// What "auto" stands for is decided by resolve_cpu_options().
//
// kInt8 weights are multiplied as int8 with activations that are int8 for the product alone; all
// else is bf16 where the processor multiplies it, else f32.
enum class CpuDType : std::uint8_t { kAuto, kF32, kBF16, kInt8 };

struct CpuOptions {
  // auto: int8 where vectors multiply bytes (AVX512-VNNI) and no tiles multiply bf16, for models
  // without experts that generate text; else bf16 where the processor multiplies it, else f32.
  CpuDType dtype = CpuDType::kAuto;
  // auto: int8 beside int8 weights where vectors multiply bytes, but not of latent rows; else as
  // activations.
  CpuDType kv_dtype = CpuDType::kAuto;
  std::int32_t threads = 0;  // 0: all that this process may use
  std::int32_t block_size_tokens = 32;  // a multiple of 16
  std::int32_t num_blocks = 0;  // > 0: exactly so many; else by kv_cache_bytes
  std::int64_t kv_cache_bytes = 0;  // 0: what fits, no more than 64 contexts
  // A row's sums have one order, whatever shares its step, however its prompt is cut into chunks
  // and whatever the number of threads.
  bool deterministic = false;
  InstructionSet instruction_set = best_instruction_set();
};

// An estimate for people and for defaults; nothing is allocated.
struct CpuPlan {
  DType dtype = DType::kF32;  // of weights
  DType activation_dtype = DType::kF32;
  DType kv_dtype = DType::kF32;
  std::int32_t threads = 1;
  std::int64_t weight_bytes = 0;
  std::int64_t available_bytes = 0;  // memory that this process could still take
  std::int64_t cache_room_bytes = 0;  // of them, what a KV cache may take beside the weights
  std::int64_t kv_bytes_per_token = 0;
  std::int64_t kv_cache_bytes = 0;
  std::int32_t num_blocks = 0;  // 0: the weights alone do not fit, or it is an encoder
};
CpuPlan plan_cpu(const ModelConfig& config, const CpuOptions& options);

// Throws std::runtime_error if a size is no multiple of what the vector kernels take at a time.
void check_cpu_shapes(const ModelConfig& config);

// A runner and what can be said about it.
class CpuRunner : public ModelRunner {
 public:
  virtual std::string describe() const = 0;
  // oneDNN's implementation of each shape of matrix product run so far. Names with "ref" or "gemm:"
  // are slow paths.
  virtual std::vector<std::string> gemm_implementations() const = 0;
};

// Loads the weights. Throws std::runtime_error if the model or an option does not suit this backend
// or the memory is too small.
std::unique_ptr<CpuRunner> make_cpu_runner(const TensorSource& tensors, const ModelConfig& config,
                                           const CpuOptions& options);
inline std::unique_ptr<CpuRunner> make_cpu_runner(const Model& model, const CpuOptions& options) {
  return make_cpu_runner(model.tensors(), model.config(), options);
}

}  // namespace batchmill
