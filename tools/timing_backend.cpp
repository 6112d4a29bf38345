#include "tools/timing_backend.h"

#include <chrono>

namespace batchmill {

OperationSums BackendSums::gemm() const {
  OperationSums sum = of(StepPiece::kProducts);
  sum.add(of(StepPiece::kVocabulary));
  return sum;
}

void BackendSums::add(const BackendSums& other) {
  for (std::size_t i = 0; i < kNumStepPieces; ++i) pieces[i].add(other.pieces[i]);
  for (const auto& [shape, sums] : other.products) products[shape].add(sums);
}

void BackendSums::clear() {
  pieces = {};
  products.clear();
}

double TimingBackend::timed(const auto& work) {
  if (!sums_->takes_times) {
    work();
    return 0.0;
  }
  finish();  // what came before
  const auto start = std::chrono::steady_clock::now();
  work();
  finish();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
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

void TimingBackend::rotation_table(const Rotation& rotation, const Tensor& output) {
  sums_->of(StepPiece::kRotation).seconds +=
      timed([&] { inner().rotation_table(rotation, output); });
}

void TimingBackend::norm(const Tensor& input, const Norm& norm, const Tensor& output) {
  sums_->of(StepPiece::kNorms).seconds += timed([&] { inner().norm(input, norm, output); });
}

void TimingBackend::norm_add(const Tensor& input, const Norm& norm, const Tensor& sum) {
  sums_->of(StepPiece::kNorms).seconds += timed([&] { inner().norm_add(input, norm, sum); });
}

void TimingBackend::count_product(const Tensor& input, const Matrix& weight, double seconds) {
  const OperationSums sums{seconds, 2.0 * input.rows * weight.in_features() * weight.out_features(),
                           0.0};
  if (weight.out_features() == vocab_size_) {
    sums_->of(StepPiece::kVocabulary).add(sums);
  } else {
    sums_->of(StepPiece::kProducts).add(sums);
    sums_->products[{weight.out_features(), weight.in_features()}].add(sums);
  }
}

void TimingBackend::matmul(const Tensor& input, const Matrix& weight, const Tensor& output) {
  count_product(input, weight, timed([&] { inner().matmul(input, weight, output); }));
}

bool TimingBackend::matmul_to_host(const Tensor& input, const Matrix& weight, std::span<float> host,
                                   LogitsScan* scan) {
  bool is_done = false;
  const double seconds =
      timed([&] { is_done = inner().matmul_to_host(input, weight, host, scan); });
  if (is_done) count_product(input, weight, seconds);
  return is_done;
}

void TimingBackend::matmul_add(const Tensor& input, const Matrix& weight, const Tensor& sum) {
  count_product(input, weight, timed([&] { inner().matmul_add(input, weight, sum); }));
}

void TimingBackend::rotate_and_store(const Tensor& qkv, const HeadNorms& norms,
                                     const Tensor& rotations, const KvCache& cache,
                                     std::int32_t layer) {
  sums_->of(StepPiece::kRotation).seconds +=
      timed([&] { inner().rotate_and_store(qkv, norms, rotations, cache, layer); });
}

void TimingBackend::attention(const Tensor& qkv, const KvCache& cache, std::int32_t layer,
                              const AttentionRule& rule, const Tensor& output) {
  OperationSums& sums = sums_->of(StepPiece::kAttention);
  sums.seconds += timed([&] { inner().attention(qkv, cache, layer, rule, output); });
  const AttentionWork& done = rule.only_logits_rows ? logits_rows_ : all_rows_;
  sums.operations += done.operations;
  const KvCacheShape& shape = cache.shape();
  sums.kv_bytes +=
      done.tokens * static_cast<double>(shape.layer_block_bytes()) / shape.block_size_tokens;
}

void TimingBackend::activate(Activation activation, const Tensor& input, const Tensor& output) {
  sums_->of(StepPiece::kActivation).seconds +=
      timed([&] { inner().activate(activation, input, output); });
}

}  // namespace batchmill
