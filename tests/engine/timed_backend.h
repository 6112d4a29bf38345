// A Backend that measures what each operation of another one takes.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "engine/backend.h"
#include "tests/engine/work_clock.h"

namespace batchmill::testing {

class TimedBackend : public Backend {
 public:
  TimedBackend(std::unique_ptr<Backend> backend, WorkClock clock,
               std::map<std::string, double>* seconds)
      : backend_(std::move(backend)), clock_(clock), seconds_(*seconds) {}

  DType activation_dtype() const override { return backend_->activation_dtype(); }
  std::string describe() const override { return backend_->describe(); }
  std::unique_ptr<DeviceBuffer> allocate(std::size_t bytes) override {
    return backend_->allocate(bytes);
  }
  void upload(std::span<const std::byte> host, void* device) override {
    backend_->upload(host, device);
  }
  void download(const Tensor& device, std::span<float> host) override {
    timed("download", [&] { backend_->download(device, host); });
  }
  std::unique_ptr<KvCache> make_kv_cache(const KvCacheShape& shape) override {
    return backend_->make_kv_cache(shape);
  }
  std::unique_ptr<Matrix> make_matrix(std::int32_t out_features, std::int32_t in_features,
                                      const RowSource& rows, std::span<const float> bias) override {
    return backend_->make_matrix(out_features, in_features, rows, bias);
  }
  std::unique_ptr<DeviceBuffer> make_table(std::int32_t rows, std::int32_t cols,
                                           const RowSource& source) override {
    return backend_->make_table(rows, cols, source);
  }
  std::int32_t padded_rows(std::int32_t rows) const override { return backend_->padded_rows(rows); }
  void begin_step(const Batch& batch, const HeadShape& heads) override {
    timed("begin_step", [&] { backend_->begin_step(batch, heads); });
  }
  void copy_blocks(const KvCache& cache) override {
    timed("copy_blocks", [&] { backend_->copy_blocks(cache); });
  }
  void embed(const Tensor& table, float scale, const Tensor& output) override {
    timed("embed", [&] { backend_->embed(table, scale, output); });
  }
  void add_positions(const Tensor& table, const Tensor& sum) override {
    timed("add_positions", [&] { backend_->add_positions(table, sum); });
  }
  void rotation_table(const Rotation& rotation, const Tensor& output) override {
    timed("rotation_table", [&] { backend_->rotation_table(rotation, output); });
  }
  void norm(const Tensor& input, const Norm& norm, const Tensor& output) override {
    timed("norm", [&] { backend_->norm(input, norm, output); });
  }
  void norm_add(const Tensor& input, const Norm& norm, const Tensor& sum) override {
    timed("norm_add", [&] { backend_->norm_add(input, norm, sum); });
  }
  void convert(const Tensor& input, const Tensor& output) override {
    timed("convert", [&] { backend_->convert(input, output); });
  }
  void matmul(const Tensor& input, const Matrix& weight, const Tensor& output) override {
    const std::string name = "matmul " + std::to_string(weight.out_features()) + "x" +
                             std::to_string(weight.in_features());
    timed(name, [&] { backend_->matmul(input, weight, output); });
  }
  void matmul_add(const Tensor& input, const Matrix& weight, const Tensor& sum) override {
    const std::string name = "matmul_add " + std::to_string(weight.out_features()) + "x" +
                             std::to_string(weight.in_features());
    timed(name, [&] { backend_->matmul_add(input, weight, sum); });
  }
  void rotate_and_store(const Tensor& qkv, const HeadNorms& norms, const Tensor& rotations,
                        const KvCache& cache, std::int32_t layer) override {
    timed("rotate_and_store",
          [&] { backend_->rotate_and_store(qkv, norms, rotations, cache, layer); });
  }
  void attention(const Tensor& qkv, const KvCache& cache, std::int32_t layer,
                 const AttentionRule& rule, const Tensor& output) override {
    timed("attention", [&] { backend_->attention(qkv, cache, layer, rule, output); });
  }
  void activate(Activation activation, const Tensor& input, const Tensor& output) override {
    timed("activate", [&] { backend_->activate(activation, input, output); });
  }
  void gather_logits_rows(const Tensor& input, const Tensor& output) override {
    timed("gather_logits_rows", [&] { backend_->gather_logits_rows(input, output); });
  }
  void mean_rows(const Tensor& input, const Tensor& output) override {
    timed("mean_rows", [&] { backend_->mean_rows(input, output); });
  }

 private:
  void timed(const std::string& name, const auto& work) {
    const double begin_s = clock_.now_s();
    work();
    seconds_[name] += clock_.now_s() - begin_s;
  }

  std::unique_ptr<Backend> backend_;
  WorkClock clock_;
  std::map<std::string, double>& seconds_;
};

}  // namespace batchmill::testing
