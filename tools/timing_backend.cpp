#include "tools/timing_backend.h"

#include <chrono>

namespace batchmill {
namespace {

class Stopwatch {
 public:
  explicit Stopwatch(double* seconds) : seconds_(seconds) {}
  ~Stopwatch() {
    *seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  double* seconds_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

double product_operations(const Tensor& input, const Matrix& weight) {
  return 2.0 * input.rows * weight.in_features() * weight.out_features();
}

}  // namespace

void TimingBackend::begin_step(const Batch& batch, const HeadShape& heads) {
  double pairs = 0.0;
  for (const std::int32_t position : batch.positions) pairs += position + 1.0;
  // A product for the scores and one for the values.
  attention_operations_ = 4.0 * pairs * heads.num_heads * heads.head_dim;
  attention_tokens_ = 0.0;
  for (const std::int32_t length : batch.context_lens) attention_tokens_ += length;
  inner().begin_step(batch, heads);
}

void TimingBackend::matmul(const Tensor& input, const Matrix& weight, const Tensor& output) {
  const Stopwatch watch(&sums_->gemm.seconds);
  inner().matmul(input, weight, output);
  sums_->gemm.operations += product_operations(input, weight);
}

void TimingBackend::matmul_add(const Tensor& input, const Matrix& weight, const Tensor& sum) {
  const Stopwatch watch(&sums_->gemm.seconds);
  inner().matmul_add(input, weight, sum);
  sums_->gemm.operations += product_operations(input, weight);
}

void TimingBackend::attention(const Tensor& qkv, const KvCache& cache, std::int32_t layer,
                              const AttentionRule& rule, const Tensor& output) {
  const Stopwatch watch(&sums_->attention.seconds);
  inner().attention(qkv, cache, layer, rule, output);
  sums_->attention.operations += attention_operations_;
  const KvCacheShape& shape = cache.shape();
  sums_->attention.kv_bytes +=
      attention_tokens_ * static_cast<double>(shape.layer_block_bytes()) / shape.block_size_tokens;
}

}  // namespace batchmill
