// A backend that does another one's work and measures the time and the arithmetic of its matrix
// products and of its attention. For `bench`; the inner backend does one operation after the other
// then, each at once. One thread.
#pragma once

#include <memory>
#include <string>

#include "engine/forwarding_backend.h"

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

class TimingBackend : public ForwardingBackend {
 public:
  TimingBackend(std::unique_ptr<Backend> inner, BackendSums* sums)
      : ForwardingBackend(std::move(inner)), sums_(sums) {}

  void begin_step(const Batch& batch, const HeadShape& heads) override;
  void matmul(const Tensor& input, const Matrix& weight, const Tensor& output) override;
  void matmul_add(const Tensor& input, const Matrix& weight, const Tensor& sum) override;
  void attention(const Tensor& qkv, const KvCache& cache, std::int32_t layer,
                 const AttentionRule& rule, const Tensor& output) override;

 private:
  void timed(OperationSums* sums, const auto& work);

  BackendSums* sums_;
  // Of one layer of the current step: operations of attention and KV tokens that sequences look at,
  // each once.
  struct AttentionWork {
    double operations = 0.0;
    double tokens = 0.0;
  };
  AttentionWork all_rows_;
  AttentionWork logits_rows_;
};

}  // namespace batchmill
