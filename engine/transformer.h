// A decoder-only transformer, written once over the operations of a Backend. Owns weights and KV
// cache. One owner thread; nothing is allocated in a step that is no larger than an earlier one.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "engine/backend.h"
#include "engine/kv_cache.h"
#include "engine/model_config.h"
#include "engine/model_runner.h"
#include "engine/weights.h"

namespace batchmill {

class Layout;

class Transformer : public ModelRunner {
 public:
  Transformer(const ModelConfig& config, std::unique_ptr<Backend> backend, Weights weights,
              std::unique_ptr<KvCache> cache);
  ~Transformer() override;

  std::int32_t vocab_size() const override { return config_.vocab_size; }
  std::int32_t block_size_tokens() const override { return cache_->shape().block_size_tokens; }
  std::int32_t num_blocks() const override { return cache_->shape().num_blocks; }
  void forward(const Batch& batch, std::span<float> logits) override;
  bool draws_tokens() const override { return backend_->draws_tokens(config_.vocab_size); }
  void begin(const Batch& batch, std::span<const Draw> draws) override;
  void end(std::span<Draw> draws, std::span<const std::int32_t> host_rows,
           std::span<float> logits) override;
  void drop_steps() noexcept override { backend_->drop_draws(); }
  LogitsScan* logits_scan() override { return is_scanned_ ? &scan_ : nullptr; }

  // Embeddings of unit length [S, H] of the batch's sequences; encoders only.
  void embed(const Batch& batch, std::span<float> embeddings);

  // What the cache held is gone.
  void replace_cache(std::unique_ptr<KvCache> cache) { cache_ = std::move(cache); }

  const Backend& backend() const { return *backend_; }

 private:
  // Working memory of a step. Rows have room for Backend::padded_rows; what the model does not need
  // has no columns.
  struct Activations {
    Tensor hidden;  // f32 [N, H] residual stream
    Tensor branch;  // f32 [N, H] what a sublayer adds, before its norm
    std::vector<Tensor> rotations;  // f32 [N, D], beside ModelConfig::ropes
    Tensor normed;  // act [N, H]
    Tensor qkv;  // act [N, (heads + 2 kv heads) × D]
    Tensor attended;  // act [N, heads × D]
    Tensor query_low;  // f32 [N, q rank] latent attention from here
    Tensor query_normed;  // act [N, q rank]
    Tensor queries;  // act [N, heads × D]
    Tensor latent;  // f32 [N, C]
    Tensor latent_queries;  // act [N, heads × C]
    Tensor latent_attended;  // act [N, heads × R]
    Tensor up;  // act [N, 2 I], or [N, I] of an MLP without a gate
    Tensor mlp;  // act [N, I]
    Tensor last;  // f32 [R, H]
    Tensor last_attended;  // act [R, heads × D]
    Tensor logits;  // f32 [R, V]
    std::unique_ptr<DeviceBuffer> row_memory;
    std::unique_ptr<DeviceBuffer> logits_memory;
    std::int32_t max_rows = 0;
    std::int32_t max_logits_rows = 0;
  };

  void reserve_rows(std::int32_t rows);
  void reserve_logits_rows(std::int32_t rows);
  void check_room(std::size_t num_rows, std::span<float> logits) const;
  void begin_step(const Batch& batch);
  // A whole step: leaves logits [R, V] in the backend's memory, or in `host` if the backend can and
  // it is not empty.
  void run(const Batch& batch, std::span<float> host);
  void run_layers(std::int32_t num_rows);
  void run_layer(std::int32_t index);
  void attend(std::int32_t index, const Tensor& input);
  // Of the rows of the last layer only those whose logits are wanted go on after attention.
  bool narrows(std::int32_t index) const;
  void attend_latent(std::int32_t index, const Tensor& input);
  void lay_out_latent(Layout* layout, std::int32_t rows);

  // A sublayer's input: the normed residual stream [N, H] act.
  Tensor enter(const Norm& norm);
  // Adds input × weightᵀ to the residual stream, where the norms stand as the config says.
  void leave(const Tensor& input, const Matrix& weight, const Norm& post_norm);
  Tensor rotations_of(std::int32_t index, std::int32_t num_rows) const;
  void compute_logits(std::span<float> host);

  ModelConfig config_;
  HeadShape heads_;
  std::unique_ptr<Backend> backend_;  // outlives everything that lies in its memory
  Weights weights_;
  std::unique_ptr<KvCache> cache_;
  Activations act_;
  Tensor stream_;  // f32 [N or R, H] of the current step: the residual stream
  std::int32_t num_logits_ = 0;  // R of the current step
  LogitsScan scan_;
  bool is_scanned_ = false;  // the step's logits are on the host, and scan_ is theirs
};

}  // namespace batchmill
