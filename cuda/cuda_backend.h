// Backend on one GPU: cuBLASLt for matrix products, own kernels for the rest; on emulated threads
// in tests. Activations and weights are bf16, the residual stream and all sums f32. One owner
// thread.
//
// Decode-only steps of up to kMaxRecordedRows rows are padded to one of a few sizes, recorded as a
// graph when a size comes for the second time, and replayed from then on.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "cuda/attention_plan.h"
#include "cuda/device_buffer.h"
#include "cuda/device_draws.h"
#include "cuda/gemm.h"
#include "cuda/norm_kernels.h"
#include "cuda/staged_upload.h"
#include "cuda/step_arrays.h"
#include "engine/backend.h"

namespace batchmill {

inline constexpr std::int32_t kMaxRecordedRows = 64;

class CudaBackend : public Backend {
 public:
  explicit CudaBackend(std::int32_t device);
  ~CudaBackend() override;

  DType activation_dtype() const override { return DType::kBF16; }
  std::string describe() const override;
  std::unique_ptr<DeviceBuffer> allocate(std::size_t bytes) override;
  void upload(std::span<const std::byte> host, void* device) override;
  void download(const Tensor& device, std::span<float> host) override;
  // bf16 keys and values; the block size must be a power of two, the head size one of 16, 32, 64,
  // 128 and 256.
  std::unique_ptr<KvCache> make_kv_cache(const KvCacheShape& shape) override;
  std::unique_ptr<Matrix> make_matrix(std::int32_t out_features, std::int32_t in_features,
                                      const RowSource& rows,
                                      std::span<const float> bias = {}) override;
  std::unique_ptr<DeviceBuffer> make_table(std::int32_t rows, std::int32_t cols,
                                           const RowSource& source) override;
  bool gathers_activations() const override { return true; }
  // Products run with as many rows, so that few shapes have to be known.
  std::int32_t padded_rows(std::int32_t rows) const override;

  void begin_step(const Batch& batch, const HeadShape& heads) override;
  void run_step(std::int32_t rows, const StepOperations& operations) override;
  void finish() override { stream_.synchronize(); }
  void copy_blocks(const KvCache& cache) override;
  void embed(const Tensor& table, float scale, const Tensor& output) override;
  void add_positions(const Tensor& table, const Tensor& sum) override;
  void rotation_table(const Rotation& rotation, const Tensor& output) override;
  void norm(const Tensor& input, const Norm& norm, const Tensor& output) override;
  void norm_add(const Tensor& input, const Norm& norm, const Tensor& sum) override;
  void convert(const Tensor& input, const Tensor& output) override;
  void matmul(const Tensor& input, const Matrix& weight, const Tensor& output) override;
  bool draws_tokens(std::int32_t vocab_size) const override;
  void begin_draws(const Tensor& logits, std::span<const Draw> draws) override;
  void end_draws(std::span<Draw> draws) override;
  void drop_draws() noexcept override;
  void matmul_add(const Tensor& input, const Matrix& weight, const Tensor& sum) override;
  void rotate_and_store(const Tensor& qkv, const HeadNorms& norms, const Tensor& rotations,
                        const KvCache& cache, std::int32_t layer) override;
  void attention(const Tensor& qkv, const KvCache& cache, std::int32_t layer,
                 const AttentionRule& rule, const Tensor& output) override;
  void activate(Activation activation, const Tensor& input, const Tensor& output) override;
  void gather_logits_rows(const Tensor& input, const Tensor& output) override;
  void mean_rows(const Tensor& input, const Tensor& output) override;

  // Latent attention and mixtures of experts: std::runtime_error, there are no kernels for them.
  void multiply_heads(const Tensor& input, const std::vector<std::unique_ptr<Matrix>>& weights,
                      const Tensor& output) override;
  void rotate_heads(const Tensor& input, const Tensor& rotations, const Tensor& output) override;
  void store_latent(const Tensor& latent, const Norm& norm, const Tensor& rotations,
                    const KvCache& cache, std::int32_t layer) override;
  void latent_attention(const Tensor& queries, const KvCache& cache, std::int32_t layer,
                        float scale, const Tensor& output) override;
  void add_experts(const Tensor& input, const Experts& experts, Activation activation,
                   const Tensor& sum) override;

  // For tests: attends in parts of so few partial rows already.
  void limit_partial_rows(std::int32_t rows) { partial_rows_limit_ = rows; }
  // For tests: how many recordings failed, and how many steps were replayed from one.
  std::int64_t num_failed_recordings() const { return num_failed_recordings_; }
  std::int64_t num_replayed_steps() const { return num_replayed_steps_; }
  // And how many keys a layer did not read once more for a sequence that shares them.
  std::int64_t num_shared_keys() const { return num_shared_keys_; }

 private:
  // A part of a step's sequences, attended to by launches of its own.
  struct PlanPart {
    AttentionPlan plan;
    std::size_t offset = 0;  // of the plan in the rule's upload
  };
  // A rule of attention that the model's layers have, and the current step's plan for it.
  struct PlannedRule {
    std::int32_t window_tokens = 0;
    bool causal = true;
    std::vector<PlanPart> parts;
    std::size_t num_parts = 0;  // of them that the step has; one unless results are many
    StagedUpload upload;
    bool is_planned = false;
  };
  // Steps of one padded size.
  struct Recording {
    std::int64_t generation = -1;  // of the addresses it was recorded with
    std::unique_ptr<CudaGraph> graph;  // null: the size was seen once, or
    bool has_failed = false;  // with these addresses it cannot be recorded
  };

  void plan(PlannedRule* rule);
  void reserve_partials(std::int32_t rows);
  bool has_parts() const;
  std::int32_t most_partial_rows() const;
  // Null if the device does not record it.
  std::unique_ptr<CudaGraph> record(std::int32_t rows, const StepOperations& operations);
  PlannedRule& planned_rule(const AttentionRule& rule);
  void copy_rows(std::int32_t rows, std::int32_t cols, const RowSource& source, void* device);
  void multiply(const Tensor& input, const Matrix& weight, const Tensor& output, bool accumulate);
  void run_norm(const Tensor& input, const Norm& norm, void* output, NormOutput kind);

  std::int32_t device_;
  DeviceFacts facts_;
  CudaStream stream_;
  CudaGemm gemm_;
  std::unique_ptr<PinnedBuffer> staging_;  // of uploads and downloads
  StepArrays arrays_;
  DeviceDraws draws_;
  std::vector<std::unique_ptr<PlannedRule>> rules_;
  std::int32_t partial_rows_limit_ = 0;  // 0: as model_limits.h has it
  std::unique_ptr<CudaBuffer> partial_outputs_;  // of attention with split keys
  std::unique_ptr<CudaBuffer> partial_sums_;

  const Batch* batch_ = nullptr;  // of the current step
  HeadShape heads_;
  bool is_decode_ = false;  // one row per sequence, logits of each, few enough to be recorded
  std::int64_t generation_ = 0;  // counts changes of addresses that recordings hold
  std::int64_t num_failed_recordings_ = 0;
  std::int64_t num_replayed_steps_ = 0;
  std::int64_t num_shared_keys_ = 0;
  std::int32_t block_tokens_ = 1;  // of the cache
  std::map<std::int32_t, Recording> recordings_;  // by padded rows
};

}  // namespace batchmill
