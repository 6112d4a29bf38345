// The operations that Transformer is written in; one implementation per kind of device. Operations
// of one backend run in the order of the calls; results are on the host after download(). One owner
// thread. N = rows (tokens) of the step, H = hidden size, D = head size, "act" =
// activation_dtype().
//
// Sums are float32 and a row's result must not depend on which rows share its step.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "engine/batch.h"
#include "engine/kv_cache.h"
#include "engine/tensor.h"

namespace batchmill {

// A weight matrix [out, in] in whatever layout its backend multiplies fastest.
class Matrix {
 public:
  virtual ~Matrix() = default;
  std::int32_t out_features() const { return out_features_; }
  std::int32_t in_features() const { return in_features_; }

 protected:
  Matrix(std::int32_t out_features, std::int32_t in_features)
      : out_features_(out_features), in_features_(in_features) {}

 private:
  std::int32_t out_features_;
  std::int32_t in_features_;
};

// Writes row `row` of a matrix as floats [in] to `output`. Called from several threads at once.
using RowSource = std::function<void(std::int64_t row, float* output)>;

// Heads of attention: qkv rows are [num_heads | num_kv_heads | num_kv_heads] × head_dim.
struct HeadShape {
  std::int32_t num_heads = 0;
  std::int32_t num_kv_heads = 0;
  std::int32_t head_dim = 0;
  std::int32_t qkv_cols() const { return (num_heads + 2 * num_kv_heads) * head_dim; }
};

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
  virtual std::unique_ptr<Matrix> make_matrix(std::int32_t out_features, std::int32_t in_features,
                                              const RowSource& rows) = 0;
  virtual std::unique_ptr<DeviceBuffer> make_table(std::int32_t rows, std::int32_t cols,
                                                   const RowSource& source) = 0;

  // Rows that a matrix product's input and output must have room for when it has `rows`. What the
  // rows in excess hold is undefined before and after.
  virtual std::int32_t padded_rows(std::int32_t rows) const = 0;

  // Begins a step. `batch` stays unchanged until the step's last call.
  virtual void begin_step(const Batch& batch, const HeadShape& heads) = 0;

  // Copies the blocks of batch.copies in all layers.
  virtual void copy_blocks(const KvCache& cache) = 0;

  // output [N, H] f32 = rows batch.token_ids of table [V, H] act.
  virtual void embed(const Tensor& table, const Tensor& output) = 0;

  // output [N, 2, D/2] f32 = cos and sin of batch.positions × frequencies [1, D/2] f32.
  virtual void rotation_table(const Tensor& frequencies, const Tensor& output) = 0;

  // output [n, H] act = input [n, H] f32 ÷ rms(input) × weight [1, H] f32.
  virtual void rms_norm(const Tensor& input, const Tensor& weight, float epsilon,
                        const Tensor& output) = 0;

  // output [n, out] act or f32 = input [n, in] act × weightᵀ.
  virtual void matmul(const Tensor& input, const Matrix& weight, const Tensor& output) = 0;

  // sum [n, out] f32 += input [n, in] act × weightᵀ.
  virtual void matmul_add(const Tensor& input, const Matrix& weight, const Tensor& sum) = 0;

  // Rotates q in place and k on its way, pairs (i, i + D/2), and stores k and v of all rows of
  // qkv [N, qkv_cols] act at batch.slot_mapping of one layer.
  virtual void rotate_and_store(const Tensor& qkv, const Tensor& rotations, const KvCache& cache,
                                std::int32_t layer) = 0;

  // output [N, heads × D] act = softmax(q · k × scale) · v. A row at position p sees the cached
  // positions 0 to p of its sequence; query head h reads kv head h ÷ (heads ÷ kv heads).
  virtual void attention(const Tensor& qkv, const KvCache& cache, std::int32_t layer, float scale,
                         const Tensor& output) = 0;

  // output [n, I] act = silu(gate) × up of gate_up [n, gate I | up I] act.
  virtual void silu_mul(const Tensor& gate_up, const Tensor& output) = 0;

  // output [R, H] f32 = rows batch.logits_rows of input [N, H] f32.
  virtual void gather_logits_rows(const Tensor& input, const Tensor& output) = 0;
};

}  // namespace batchmill
