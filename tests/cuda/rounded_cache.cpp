#include "tests/cuda/rounded_cache.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "engine/cpu/cpu_backend.h"
#include "engine/forwarding_backend.h"
#include "engine/transformer.h"
#include "engine/weights.h"
#include "tests/cuda/hadamard.h"

namespace batchmill::testing {
namespace {

constexpr std::int32_t kBlockTokens = 16;

// The nearest number of four bits of exponent and three of mantissa, ties to even.
double nearest_fp8(double value) {
  const int exponent = std::max(value == 0.0 ? -6 : std::ilogb(value), -6);
  const double step = std::ldexp(1.0, exponent - 3);
  return std::nearbyint(value / step) * step;
}

class RoundedCacheBackend : public ForwardingBackend {
 public:
  RoundedCacheBackend(std::unique_ptr<Backend> inner, DType kv)
      : ForwardingBackend(std::move(inner)), kv_(kv) {}

  void begin_step(const Batch& batch, const HeadShape& heads) override {
    heads_ = heads;
    ForwardingBackend::begin_step(batch, heads);
  }

  void rotate_and_store(const Tensor& qkv, const HeadNorms& norms, const Tensor& rotations,
                        const KvCache& cache, std::int32_t layer) override {
    inner().finish();
    const auto dim = static_cast<std::size_t>(heads_.head_dim);
    const auto queries = static_cast<std::size_t>(heads_.num_heads);
    const auto kv_heads = static_cast<std::size_t>(heads_.num_kv_heads);
    for (std::int32_t row = 0; row < qkv.rows; ++row) {
      for (std::size_t head = 0; head < queries + 2 * kv_heads; ++head) {
        float* source = qkv.row<float>(row) + head * dim;
        std::vector<double> values(source, source + dim);
        const bool is_value = head >= queries + kv_heads;
        if (!is_value) {
          norm_row(head < queries ? norms.query : norms.key, norms.epsilon, &values);
          if (rotations.data != nullptr) rotate_row(rotations.row<float>(row), &values);
        }
        if (!is_value && head >= queries && norms.key_offset.data != nullptr) {
          const float* offset = norms.key_offset.row<float>(0) + (head - queries) * dim;
          for (std::size_t i = 0; i < dim; ++i) values[i] -= offset[i];
        }
        if (head >= queries) round_row(!is_value, &values);
        std::copy(values.begin(), values.end(), source);
      }
    }
    inner().rotate_and_store(qkv, {}, {}, cache, layer);
  }

 private:
  static void norm_row(const Tensor& weight, float epsilon, std::vector<double>* values) {
    if (weight.data == nullptr) return;
    double squares = 0;
    for (const double value : *values) squares += value * value;
    const double scale = 1 / std::sqrt(squares / static_cast<double>(values->size()) + epsilon);
    for (std::size_t i = 0; i < values->size(); ++i) {
      (*values)[i] *= scale * weight.row<float>(0)[i];
    }
  }
  static void rotate_row(const float* cosines, std::vector<double>* values) {
    const std::size_t half = values->size() / 2;
    const float* sines = cosines + half;
    for (std::size_t i = 0; i < half; ++i) {
      const double first = (*values)[i];
      const double second = (*values)[i + half];
      (*values)[i] = first * cosines[i] - second * sines[i];
      (*values)[i + half] = second * cosines[i] + first * sines[i];
    }
  }
  void round_row(bool is_key, std::vector<double>* values) const {
    if (kv_ == DType::kF32) return;
    const bool mixes = is_key && kv_ == DType::kI8;
    if (mixes) *values = times_hadamard(*values);
    double largest = 1e-30;
    for (const double value : *values) largest = std::max(largest, std::abs(value));
    const double scale = largest / (kv_ == DType::kI8 ? 127 : 448);
    for (double& value : *values) {
      value =
          scale * (kv_ == DType::kI8 ? std::nearbyint(value / scale) : nearest_fp8(value / scale));
    }
    if (!mixes) return;
    *values = times_hadamard(*values);
    for (double& value : *values) value /= static_cast<double>(values->size());
  }

  DType kv_;
  HeadShape heads_;
};

}  // namespace

std::unique_ptr<ModelRunner> make_rounded_runner(const TensorSource& tensors,
                                                 const ModelConfig& config, DType kv,
                                                 std::int32_t num_blocks) {
  auto backend =
      std::make_unique<RoundedCacheBackend>(std::make_unique<CpuBackend>(DType::kF32, 1), kv);
  Weights weights = load_weights(tensors, config, backend.get());
  KvCacheShape shape;
  shape.num_layers = config.num_layers;
  shape.num_blocks = num_blocks;
  shape.block_size_tokens = kBlockTokens;
  shape.num_kv_heads = config.num_kv_heads;
  shape.head_dim = config.head_dim;
  shape.dtype = DType::kF32;
  auto cache = backend->make_kv_cache(shape);
  return std::make_unique<Transformer>(config, std::move(backend), std::move(weights),
                                       std::move(cache));
}

}  // namespace batchmill::testing
