// The operations that Transformer is written in; one implementation per kind of device. Operations
// of one backend run in the order of the calls; results are on the host after download(), and in
// tensors at the latest after finish(). One owner thread. N = rows (tokens) of the step, H = hidden
// size, D = head size, "act" = activation_dtype().
//
// Sums are float32 and a row's result must not depend on which rows share its step.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>

#include "engine/batch.h"
#include "engine/draw.h"
#include "engine/kv_cache.h"
#include "engine/logits_scan.h"
#include "engine/operands.h"
#include "engine/tensor.h"

namespace batchmill {

// The operations of a step on `rows` rows.
using StepOperations = std::function<void(std::int32_t rows)>;

class Backend {
 public:
  virtual ~Backend() = default;

  virtual DType activation_dtype() const = 0;
  virtual std::string describe() const = 0;  // device and implementations, for people

  // Memory. Throws std::bad_alloc or std::runtime_error.
  virtual std::unique_ptr<DeviceBuffer> allocate(std::size_t bytes) = 0;
  virtual void upload(std::span<const std::byte> host, void* device) = 0;
  virtual void download(const Tensor& device, std::span<float> host) = 0;  // float32
  virtual std::unique_ptr<KvCache> make_kv_cache(const KvCacheShape& shape) = 0;

  // Weights: a matrix for products, or a plain table [rows, cols] in the activation type.
  // `bias` is empty or [out].
  virtual std::unique_ptr<Matrix> make_matrix(std::int32_t out_features, std::int32_t in_features,
                                              const RowSource& rows,
                                              std::span<const float> bias = {}) = 0;
  virtual std::unique_ptr<DeviceBuffer> make_table(std::int32_t rows, std::int32_t cols,
                                                   const RowSource& source) = 0;

  // Whether the last layer may go on with batch.logits_rows alone after its attention.
  virtual bool gathers_activations() const { return false; }

  // Rows that a matrix product's input and output must have room for when it has `rows`. What the
  // rows in excess hold is undefined before and after.
  virtual std::int32_t padded_rows(std::int32_t rows) const = 0;

  // Begins a step. `batch` stays unchanged until the step's last call. Rows of batch.drawn_tokens
  // have the tokens of the draws begun last.
  virtual void begin_step(const Batch& batch, const HeadShape& heads) = 0;

  // Runs what follows copy_blocks(), up to the logits in the backend's memory. A backend may have
  // more rows computed, up to padded_rows(), or replay what it recorded when it ran the operations
  // for as many rows: they must be the same calls then, on memory that allocate() gave.
  virtual void run_step(std::int32_t rows, const StepOperations& operations) { operations(rows); }

  // Returns when everything that was called has been done.
  virtual void finish() {}

  // Copies the blocks of batch.copies in all layers.
  virtual void copy_blocks(const KvCache& cache) = 0;

  // output [N, H] f32 = rows batch.token_ids of table [V, H] act × scale.
  virtual void embed(const Tensor& table, float scale, const Tensor& output) = 0;

  // sum [N, H] f32 += rows batch.positions of table [positions, H] f32.
  virtual void add_positions(const Tensor& table, const Tensor& sum) = 0;

  // output [N, D] f32 = cosines [D/2], then sines of batch.positions × frequencies.
  virtual void rotation_table(const Rotation& rotation, const Tensor& output) = 0;

  // output [n, H] act or f32 = norm of input [n, H] f32; may be the input.
  virtual void norm(const Tensor& input, const Norm& norm, const Tensor& output) = 0;

  // sum [n, H] f32 += norm of input [n, H] f32, which is undefined afterwards.
  virtual void norm_add(const Tensor& input, const Norm& norm, const Tensor& sum) = 0;

  // output [n, H] act = input [n, H] f32.
  virtual void convert(const Tensor& input, const Tensor& output) = 0;

  // output [n, out] act or f32 = input [n, in] act × weightᵀ + bias.
  virtual void matmul(const Tensor& input, const Matrix& weight, const Tensor& output) = 0;

  // The same as matmul(), but writes to memory of the host [n, out], and each row's maxima to
  // `scan`. False if this backend does not with this matrix: then nothing has been done.
  virtual bool matmul_to_host(const Tensor& /*input*/, const Matrix& /*weight*/,
                              std::span<float> /*host*/, LogitsScan* /*scan*/) {
    return false;
  }

  // Whether there are draws from rows of so many logits.
  virtual bool draws_tokens(std::int32_t /*vocab_size*/) const { return false; }

  // Draws from rows of `logits` [R, V] f32 the tokens that Sampler does (engine/sampler.h): the
  // last call of a step of that many logits rows. The newest token of a draw's context may be
  // kNoToken: its row is one of batch.drawn_tokens. At most two steps' draws are under way.
  virtual void begin_draws(const Tensor& /*logits*/, std::span<const Draw> /*draws*/) {
    throw std::logic_error("this backend draws no tokens");
  }
  // Waits for the oldest step whose draws have been begun, and fills them in.
  virtual void end_draws(std::span<Draw> /*draws*/) {
    throw std::logic_error("this backend draws no tokens");
  }
  // Waits for the draws under way and forgets them, whatever became of them.
  virtual void drop_draws() noexcept {}

  // sum [n, out] f32 += input [n, in] act × weightᵀ + bias.
  virtual void matmul_add(const Tensor& input, const Matrix& weight, const Tensor& sum) = 0;

  // Norms q and k, rotates q in place and k on its way, pairs (i, i + D/2), and stores k and v of
  // all rows of qkv [N, qkv_cols] act at batch.slot_mapping of one layer. Without data in
  // `rotations` nothing is rotated.
  virtual void rotate_and_store(const Tensor& qkv, const HeadNorms& norms, const Tensor& rotations,
                                const KvCache& cache, std::int32_t layer) = 0;

  // output [N, heads × D] act = softmax(q · k × scale) · v. A row at position p sees the cached
  // positions of its sequence up to p, or as the rule says; query head h reads kv head
  // h ÷ (heads ÷ kv heads). What a row sums, and in which order, depends only on its position.
  virtual void attention(const Tensor& qkv, const KvCache& cache, std::int32_t layer,
                         const AttentionRule& rule, const Tensor& output) = 0;

  // Latent attention. R: rank of the cached latent vector, C = R + rotated dimensions, parts of a
  // row: one per head.
  // Multiplies the first columns of each part of input [n, parts] act by a matrix of its own, into
  // the first columns of each part of output [n, parts] act.
  virtual void multiply_heads(const Tensor& input,
                              const std::vector<std::unique_ptr<Matrix>>& weights,
                              const Tensor& output) = 0;
  // Copies the last columns of each part of input [n, parts] act, rotated, to the last ones of
  // output [n, parts] act; as many as `rotations` has.
  virtual void rotate_heads(const Tensor& input, const Tensor& rotations, const Tensor& output) = 0;
  // Norms the first R columns of latent [N, C] f32 in place, rotates the others and stores the rows
  // at batch.slot_mapping of one layer.
  virtual void store_latent(const Tensor& latent, const Norm& norm, const Tensor& rotations,
                            const KvCache& cache, std::int32_t layer) = 0;
  // output [N, heads × R] act = softmax(queries [N, heads × C] act · row × scale) · first R columns
  // of row, over the cached rows up to each query's position.
  virtual void latent_attention(const Tensor& queries, const KvCache& cache, std::int32_t layer,
                                float scale, const Tensor& output) = 0;

  // sum [n, H] f32 += what the chosen experts make of input [n, H] act, by weight.
  virtual void add_experts(const Tensor& input, const Experts& experts, Activation activation,
                           const Tensor& sum) = 0;

  // output [n, I] act = act(gate) × up of input [n, gate I | up I] act, or act(input) if the input
  // is no wider than the output.
  virtual void activate(Activation activation, const Tensor& input, const Tensor& output) = 0;

  // output [R, H] f32 = rows batch.logits_rows of input [N, H] f32; act likewise if
  // gathers_activations().
  virtual void gather_logits_rows(const Tensor& input, const Tensor& output) = 0;

  // output [S, H] f32 = mean of each sequence's rows of input [N, H] f32, scaled to unit length.
  virtual void mean_rows(const Tensor& input, const Tensor& output) = 0;
};

}  // namespace batchmill
