// A backend that passes every call on to another one: the base of those that watch one at work. One
// thread.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "engine/backend.h"

namespace batchmill {

class ForwardingBackend : public Backend {
 public:
  explicit ForwardingBackend(std::unique_ptr<Backend> inner) : inner_(std::move(inner)) {}

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
                                      const RowSource& rows,
                                      std::span<const float> bias = {}) override {
    return inner_->make_matrix(out_features, in_features, rows, bias);
  }
  std::unique_ptr<DeviceBuffer> make_table(std::int32_t rows, std::int32_t cols,
                                           const RowSource& source) override {
    return inner_->make_table(rows, cols, source);
  }
  bool gathers_activations() const override { return inner_->gathers_activations(); }
  std::int32_t padded_rows(std::int32_t rows) const override { return inner_->padded_rows(rows); }
  bool matmul_to_host(const Tensor& input, const Matrix& weight, std::span<float> host,
                      LogitsScan* scan) override {
    return inner_->matmul_to_host(input, weight, host, scan);
  }
  bool draws_tokens(std::int32_t vocab_size) const override {
    return inner_->draws_tokens(vocab_size);
  }
  void begin_draws(const Tensor& logits, std::span<const Draw> draws) override {
    inner_->begin_draws(logits, draws);
  }
  void end_draws(std::span<Draw> draws) override { inner_->end_draws(draws); }
  void drop_draws() noexcept override { inner_->drop_draws(); }
  void begin_step(const Batch& batch, const HeadShape& heads) override {
    inner_->begin_step(batch, heads);
  }
  void finish() override { inner_->finish(); }
  void copy_blocks(const KvCache& cache) override { inner_->copy_blocks(cache); }
  void embed(const Tensor& table, float scale, const Tensor& output) override {
    inner_->embed(table, scale, output);
  }
  void add_positions(const Tensor& table, const Tensor& sum) override {
    inner_->add_positions(table, sum);
  }
  void rotation_table(const Rotation& rotation, const Tensor& output) override {
    inner_->rotation_table(rotation, output);
  }
  void norm(const Tensor& input, const Norm& norm, const Tensor& output) override {
    inner_->norm(input, norm, output);
  }
  void norm_add(const Tensor& input, const Norm& norm, const Tensor& sum) override {
    inner_->norm_add(input, norm, sum);
  }
  void convert(const Tensor& input, const Tensor& output) override {
    inner_->convert(input, output);
  }
  void matmul(const Tensor& input, const Matrix& weight, const Tensor& output) override {
    inner_->matmul(input, weight, output);
  }
  void matmul_add(const Tensor& input, const Matrix& weight, const Tensor& sum) override {
    inner_->matmul_add(input, weight, sum);
  }
  void rotate_and_store(const Tensor& qkv, const HeadNorms& norms, const Tensor& rotations,
                        const KvCache& cache, std::int32_t layer) override {
    inner_->rotate_and_store(qkv, norms, rotations, cache, layer);
  }
  void attention(const Tensor& qkv, const KvCache& cache, std::int32_t layer,
                 const AttentionRule& rule, const Tensor& output) override {
    inner_->attention(qkv, cache, layer, rule, output);
  }
  void multiply_heads(const Tensor& input, const std::vector<std::unique_ptr<Matrix>>& weights,
                      const Tensor& output) override {
    inner_->multiply_heads(input, weights, output);
  }
  void rotate_heads(const Tensor& input, const Tensor& rotations, const Tensor& output) override {
    inner_->rotate_heads(input, rotations, output);
  }
  void store_latent(const Tensor& latent, const Norm& norm, const Tensor& rotations,
                    const KvCache& cache, std::int32_t layer) override {
    inner_->store_latent(latent, norm, rotations, cache, layer);
  }
  void latent_attention(const Tensor& queries, const KvCache& cache, std::int32_t layer,
                        float scale, const Tensor& output) override {
    inner_->latent_attention(queries, cache, layer, scale, output);
  }
  void add_experts(const Tensor& input, const Experts& experts, Activation activation,
                   const Tensor& sum) override {
    inner_->add_experts(input, experts, activation, sum);
  }
  void activate(Activation activation, const Tensor& input, const Tensor& output) override {
    inner_->activate(activation, input, output);
  }
  void gather_logits_rows(const Tensor& input, const Tensor& output) override {
    inner_->gather_logits_rows(input, output);
  }
  void mean_rows(const Tensor& input, const Tensor& output) override {
    inner_->mean_rows(input, output);
  }

 protected:
  Backend& inner() { return *inner_; }

 private:
  std::unique_ptr<Backend> inner_;
};

}  // namespace batchmill
