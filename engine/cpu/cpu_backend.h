// Backend on this machine's processors: oneDNN for matrix products in floating point, own vector
// kernels for the rest. One owner thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/backend.h"
#include "engine/cpu/gemm.h"
#include "engine/cpu/int8_gemm.h"
#include "engine/cpu/kernels.h"
#include "engine/cpu/row_chain.h"
#include "engine/cpu/thread_team.h"
#include "engine/expert_router.h"

namespace batchmill {

class CpuBackend : public Backend {
 public:
  // `dtype` is that of weights. Activations have it too, but for kI8: then they are bf16 where the
  // instruction set multiplies it, else f32. `deterministic`: CpuOptions says what it means.
  CpuBackend(DType dtype, std::int32_t num_threads, InstructionSet set = best_instruction_set(),
             bool deterministic = false);

  DType activation_dtype() const override { return gemm_.dtype(); }
  DType weight_dtype() const { return dtype_; }
  std::string describe() const override;
  std::unique_ptr<DeviceBuffer> allocate(std::size_t bytes) override;
  void upload(std::span<const std::byte> host, void* device) override;
  void download(const Tensor& device, std::span<float> host) override;
  // The block size must be a multiple of kKvGroupTokens and the head size of 16.
  std::unique_ptr<KvCache> make_kv_cache(const KvCacheShape& shape) override;
  std::unique_ptr<Matrix> make_matrix(std::int32_t out_features, std::int32_t in_features,
                                      const RowSource& rows,
                                      std::span<const float> bias = {}) override;
  std::unique_ptr<DeviceBuffer> make_table(std::int32_t rows, std::int32_t cols,
                                           const RowSource& source) override;
  bool gathers_activations() const override { return true; }
  std::int32_t padded_rows(std::int32_t rows) const override { return Gemm::padded_rows(rows); }

  void begin_step(const Batch& batch, const HeadShape& heads) override;
  void finish() override { chain_.finish(); }
  void copy_blocks(const KvCache& cache) override;
  void embed(const Tensor& table, float scale, const Tensor& output) override;
  void add_positions(const Tensor& table, const Tensor& sum) override;
  void rotation_table(const Rotation& rotation, const Tensor& output) override;
  void norm(const Tensor& input, const Norm& norm, const Tensor& output) override;
  void norm_add(const Tensor& input, const Norm& norm, const Tensor& sum) override;
  void convert(const Tensor& input, const Tensor& output) override;
  void matmul(const Tensor& input, const Matrix& weight, const Tensor& output) override;
  bool matmul_to_host(const Tensor& input, const Matrix& weight, std::span<float> host,
                      LogitsScan* scan) override;
  void matmul_add(const Tensor& input, const Matrix& weight, const Tensor& sum) override;
  void rotate_and_store(const Tensor& qkv, const HeadNorms& norms, const Tensor& rotations,
                        const KvCache& cache, std::int32_t layer) override;
  void attention(const Tensor& qkv, const KvCache& cache, std::int32_t layer,
                 const AttentionRule& rule, const Tensor& output) override;
  void multiply_heads(const Tensor& input, const std::vector<std::unique_ptr<Matrix>>& weights,
                      const Tensor& output) override;
  void rotate_heads(const Tensor& input, const Tensor& rotations, const Tensor& output) override;
  void store_latent(const Tensor& latent, const Norm& norm, const Tensor& rotations,
                    const KvCache& cache, std::int32_t layer) override;
  void latent_attention(const Tensor& queries, const KvCache& cache, std::int32_t layer,
                        float scale, const Tensor& output) override;
  void add_experts(const Tensor& input, const Experts& experts, Activation activation,
                   const Tensor& sum) override;
  void activate(Activation activation, const Tensor& input, const Tensor& output) override;
  void gather_logits_rows(const Tensor& input, const Tensor& output) override;
  void mean_rows(const Tensor& input, const Tensor& output) override;

  // As Gemm::implementations(), and how int8 products are done.
  std::vector<std::string> gemm_implementations() const;
  std::int32_t num_threads() const { return num_threads_; }

 private:
  // Consecutive query tokens of one sequence.
  struct AttentionSpan {
    std::int32_t sequence = 0;
    std::int32_t first_row = 0;
    std::int32_t num_rows = 0;
    std::int32_t first_position = 0;
  };
  // One span, or those of decodes that begin with the same blocks, against one kv head.
  struct AttentionTile {
    std::int32_t kv_head = 0;
    std::int32_t first_span = 0;
    std::int32_t num_spans = 0;
  };

  void multiply(const Tensor& input, const Matrix& weight, const Tensor& output, bool accumulate);
  static std::size_t index_of(DType dtype) { return static_cast<std::size_t>(dtype); }
  static std::byte* row_of(const Tensor& tensor, std::int64_t row) {
    return static_cast<std::byte*>(tensor.data) +
           row * static_cast<std::int64_t>(tensor.row_bytes());
  }

  void plan_attention(std::int32_t block_size_tokens);
  void add_tiles(std::int32_t first_span, std::int32_t num_spans);
  bool has_logits(const AttentionTile& tile) const;
  // Of a tile's queries in a row, and of its output.
  std::int64_t first_byte(const AttentionTile& tile, DType dtype) const;
  // Without its queries and output.
  AttentionPart make_part(const AttentionSpan& span, const AttentionRule& rule) const;
  void attend_tile(const AttentionTile& tile, const Tensor& qkv, const AttentionRule& rule,
                   const Tensor& output, AttentionTask* task,
                   void (*attend)(const AttentionTask& task)) const;
  void norm_row(const float* input, const Norm& norm, std::int32_t cols, DType dtype,
                void* output) const;
  void route(const Tensor& input, const Experts& experts);
  // Memory for one operation, aligned to a cache line.
  std::byte* reserve_work(std::size_t bytes);
  // For loops over rows that are too small to be worth waking threads.
  std::int32_t threads_for(std::int32_t rows, std::int32_t cols) const;
  // Whether so many rows are worth waiting for each other's operations.
  bool is_chained(std::int32_t rows) const;
  // Calls work(row) for all rows.
  template <typename Work>
  void divide_now(std::int32_t rows, std::int32_t cols, const Work& work) {
    finish();
    team_.divide(threads_for(rows, cols), rows, work);
  }
  // Later, if they are chained: `work` holds copies of what it needs.
  template <typename Work>
  void divide_rows(std::int32_t rows, std::int32_t cols, const Work& work) {
    if (is_chained(rows)) {
      chain_.add(rows, [work](std::int32_t first, std::int32_t count, std::int32_t) {
        for (std::int32_t i = first; i < first + count; ++i) work(i);
      });
    } else {
      divide_now(rows, cols, work);
    }
  }

  DType dtype_;
  const Kernels& kernels_;
  std::int32_t num_threads_;
  ThreadTeam team_;
  RowChain chain_;
  Gemm gemm_;
  Int8Gemm int8_gemm_;

  const Batch* batch_ = nullptr;  // of the current step
  HeadShape heads_;
  std::vector<AttentionSpan> spans_;
  std::vector<AttentionTile> tiles_;
  bool attention_planned_ = false;
  std::unique_ptr<DeviceBuffer> scratch_;  // [threads, scratch_floats_]
  std::size_t scratch_floats_ = 0;
  std::unique_ptr<DeviceBuffer> work_;  // of the operation that runs
  std::vector<std::vector<ExpertChoice>> choices_;  // [rows] of a mixture of experts
  std::vector<std::int32_t> slots_;  // [rows, choices] row of the experts' results
  std::vector<float> no_rotation_;  // [D]: cosines 1, sines 0
};

}  // namespace batchmill
