#include "tools/timing_backend.h"

#include <chrono>

namespace batchmill {
namespace {

double product_operations(const Tensor& input, const Matrix& weight) {
  return 2.0 * input.rows * weight.in_features() * weight.out_features();
}

}  // namespace

void TimingBackend::timed(OperationSums* sums, const auto& work) {
  finish();  // what came before
  const auto start = std::chrono::steady_clock::now();
  work();
  finish();
  sums->seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void TimingBackend::begin_step(const Batch& batch, const HeadShape& heads) {
  // A product for the scores and one for the values.
  const double pair_operations = 4.0 * heads.num_heads * heads.head_dim;
  all_rows_ = {};
  logits_rows_ = {};
  for (const std::int32_t position : batch.positions) {
    all_rows_.operations += pair_operations * (position + 1.0);
  }
  for (const std::int32_t length : batch.context_lens) all_rows_.tokens += length;
  for (const std::int32_t row : batch.logits_rows) {
    const double tokens = batch.positions[static_cast<std::size_t>(row)] + 1.0;
    logits_rows_.operations += pair_operations * tokens;
    logits_rows_.tokens += tokens;
  }
  inner().begin_step(batch, heads);
}

void TimingBackend::matmul(const Tensor& input, const Matrix& weight, const Tensor& output) {
  timed(&sums_->gemm, [&] { inner().matmul(input, weight, output); });
  sums_->gemm.operations += product_operations(input, weight);
}

void TimingBackend::matmul_add(const Tensor& input, const Matrix& weight, const Tensor& sum) {
  timed(&sums_->gemm, [&] { inner().matmul_add(input, weight, sum); });
  sums_->gemm.operations += product_operations(input, weight);
}

void TimingBackend::attention(const Tensor& qkv, const KvCache& cache, std::int32_t layer,
                              const AttentionRule& rule, const Tensor& output) {
  timed(&sums_->attention, [&] { inner().attention(qkv, cache, layer, rule, output); });
  const AttentionWork& done = rule.only_logits_rows ? logits_rows_ : all_rows_;
  sums_->attention.operations += done.operations;
  const KvCacheShape& shape = cache.shape();
  sums_->attention.kv_bytes +=
      done.tokens * static_cast<double>(shape.layer_block_bytes()) / shape.block_size_tokens;
}

}  // namespace batchmill
