// A Backend that measures what each operation of another one takes.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "engine/forwarding_backend.h"
#include "tests/engine/work_clock.h"

namespace batchmill::testing {

class TimedBackend : public ForwardingBackend {
 public:
  TimedBackend(std::unique_ptr<Backend> backend, WorkClock clock,
               std::map<std::string, double>* seconds)
      : ForwardingBackend(std::move(backend)), clock_(clock), seconds_(*seconds) {}

  void download(const Tensor& device, std::span<float> host) override {
    timed("download", [&] { inner().download(device, host); });
  }
  void begin_step(const Batch& batch, const HeadShape& heads) override {
    timed("begin_step", [&] { inner().begin_step(batch, heads); });
  }
  void copy_blocks(const KvCache& cache) override {
    timed("copy_blocks", [&] { inner().copy_blocks(cache); });
  }
  void embed(const Tensor& table, float scale, const Tensor& output) override {
    timed("embed", [&] { inner().embed(table, scale, output); });
  }
  void add_positions(const Tensor& table, const Tensor& sum) override {
    timed("add_positions", [&] { inner().add_positions(table, sum); });
  }
  void rotation_table(const Rotation& rotation, const Tensor& output) override {
    timed("rotation_table", [&] { inner().rotation_table(rotation, output); });
  }
  void norm(const Tensor& input, const Norm& norm, const Tensor& output) override {
    timed("norm", [&] { inner().norm(input, norm, output); });
  }
  void norm_add(const Tensor& input, const Norm& norm, const Tensor& sum) override {
    timed("norm_add", [&] { inner().norm_add(input, norm, sum); });
  }
  void convert(const Tensor& input, const Tensor& output) override {
    timed("convert", [&] { inner().convert(input, output); });
  }
  void matmul(const Tensor& input, const Matrix& weight, const Tensor& output) override {
    const std::string name = "matmul " + std::to_string(weight.out_features()) + "x" +
                             std::to_string(weight.in_features());
    timed(name, [&] { inner().matmul(input, weight, output); });
  }
  bool matmul_to_host(const Tensor& input, const Matrix& weight, std::span<float> host,
                      LogitsScan* scan) override {
    bool is_done = false;
    timed("matmul_to_host", [&] { is_done = inner().matmul_to_host(input, weight, host, scan); });
    return is_done;
  }
  void matmul_add(const Tensor& input, const Matrix& weight, const Tensor& sum) override {
    const std::string name = "matmul_add " + std::to_string(weight.out_features()) + "x" +
                             std::to_string(weight.in_features());
    timed(name, [&] { inner().matmul_add(input, weight, sum); });
  }
  void rotate_and_store(const Tensor& qkv, const HeadNorms& norms, const Tensor& rotations,
                        const KvCache& cache, std::int32_t layer) override {
    timed("rotate_and_store",
          [&] { inner().rotate_and_store(qkv, norms, rotations, cache, layer); });
  }
  void attention(const Tensor& qkv, const KvCache& cache, std::int32_t layer,
                 const AttentionRule& rule, const Tensor& output) override {
    timed("attention", [&] { inner().attention(qkv, cache, layer, rule, output); });
  }
  void multiply_heads(const Tensor& input, const std::vector<std::unique_ptr<Matrix>>& weights,
                      const Tensor& output) override {
    timed("multiply_heads", [&] { inner().multiply_heads(input, weights, output); });
  }
  void rotate_heads(const Tensor& input, const Tensor& rotations, const Tensor& output) override {
    timed("rotate_heads", [&] { inner().rotate_heads(input, rotations, output); });
  }
  void store_latent(const Tensor& latent, const Norm& norm, const Tensor& rotations,
                    const KvCache& cache, std::int32_t layer) override {
    timed("store_latent", [&] { inner().store_latent(latent, norm, rotations, cache, layer); });
  }
  void latent_attention(const Tensor& queries, const KvCache& cache, std::int32_t layer,
                        float scale, const Tensor& output) override {
    timed("latent_attention",
          [&] { inner().latent_attention(queries, cache, layer, scale, output); });
  }
  void add_experts(const Tensor& input, const Experts& experts, Activation activation,
                   const Tensor& sum) override {
    timed("add_experts", [&] { inner().add_experts(input, experts, activation, sum); });
  }
  void activate(Activation activation, const Tensor& input, const Tensor& output) override {
    timed("activate", [&] { inner().activate(activation, input, output); });
  }
  void gather_logits_rows(const Tensor& input, const Tensor& output) override {
    timed("gather_logits_rows", [&] { inner().gather_logits_rows(input, output); });
  }
  void mean_rows(const Tensor& input, const Tensor& output) override {
    timed("mean_rows", [&] { inner().mean_rows(input, output); });
  }

 private:
  void timed(const std::string& name, const auto& work) {
    const double begin_s = clock_.now_s();
    work();
    finish();
    seconds_[name] += clock_.now_s() - begin_s;
  }

  WorkClock clock_;
  std::map<std::string, double>& seconds_;
};

}  // namespace batchmill::testing
