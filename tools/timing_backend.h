// A backend that does another one's work and measures the time and the arithmetic of its matrix
// products and of its attention. For `bench`; the inner backend must compute before it returns. One
// thread.
#pragma once

#include <memory>
#include <string>

#include "engine/backend.h"

namespace batchmill {

struct OperationSums {
  double seconds = 0.0;
  double operations = 0.0;  // floating-point operations
  double kv_bytes = 0.0;  // attention: keys and values that the rows look at

  void add(const OperationSums& other) {
    seconds += other.seconds;
    operations += other.operations;
    kv_bytes += other.kv_bytes;
  }
};

// Owned by the caller; outlives the backend.
struct BackendSums {
  OperationSums gemm;
  OperationSums attention;
};

class TimingBackend : public Backend {
 public:
  TimingBackend(std::unique_ptr<Backend> inner, BackendSums* sums)
      : inner_(std::move(inner)), sums_(sums) {}

  DType activation_dtype() const override { return inner_->activation_dtype(); }
  std::string describe() const override { return inner_->describe(); }
  std::unique_ptr<DeviceBuffer> allocate(std::size_t bytes) override {
    return inner_->allocate(bytes);
  }
  void upload(std::span<const std::byte> host, void* device) override {
    inner_->upload(host, device);
  }
  void download(const Tensor& device, std::span<float> host) override {
    inner_->download(device, host);
  }
  std::unique_ptr<KvCache> make_kv_cache(const KvCacheShape& shape) override {
    return inner_->make_kv_cache(shape);
  }
  std::unique_ptr<Matrix> make_matrix(std::int32_t out_features, std::int32_t in_features,
                                      const RowSource& rows) override {
    return inner_->make_matrix(out_features, in_features, rows);
  }
  std::unique_ptr<DeviceBuffer> make_table(std::int32_t rows, std::int32_t cols,
                                           const RowSource& source) override {
    return inner_->make_table(rows, cols, source);
  }
  std::int32_t padded_rows(std::int32_t rows) const override { return inner_->padded_rows(rows); }

  void begin_step(const Batch& batch, const HeadShape& heads) override;
  void copy_blocks(const KvCache& cache) override { inner_->copy_blocks(cache); }
  void embed(const Tensor& table, const Tensor& output) override { inner_->embed(table, output); }
  void rotation_table(const Tensor& frequencies, const Tensor& output) override {
    inner_->rotation_table(frequencies, output);
  }
  void rms_norm(const Tensor& input, const Tensor& weight, float epsilon,
                const Tensor& output) override {
    inner_->rms_norm(input, weight, epsilon, output);
  }
  void matmul(const Tensor& input, const Matrix& weight, const Tensor& output) override;
  void matmul_add(const Tensor& input, const Matrix& weight, const Tensor& sum) override;
  void rotate_and_store(const Tensor& qkv, const Tensor& rotations, const KvCache& cache,
                        std::int32_t layer) override {
    inner_->rotate_and_store(qkv, rotations, cache, layer);
  }
  void attention(const Tensor& qkv, const KvCache& cache, std::int32_t layer, float scale,
                 const Tensor& output) override;
  void silu_mul(const Tensor& gate_up, const Tensor& output) override {
    inner_->silu_mul(gate_up, output);
  }
  void gather_logits_rows(const Tensor& input, const Tensor& output) override {
    inner_->gather_logits_rows(input, output);
  }

 private:
  std::unique_ptr<Backend> inner_;
  BackendSums* sums_;
  double attention_operations_ = 0.0;  // of one layer of the current step
  double attention_tokens_ = 0.0;  // KV tokens that the step's sequences look at, each once
};

}  // namespace batchmill
