#include "engine/cpu/cpu_encoder.h"

#include <stdexcept>
#include <string>

#include "engine/cpu/cpu_backend.h"
#include "engine/transformer.h"
#include "engine/weights.h"

namespace batchmill {
namespace {

constexpr std::int32_t kBlockTokens = 16;

class Encoder : public EncoderRunner {
 public:
  Encoder(const ModelConfig& config, std::unique_ptr<CpuBackend> backend, Weights weights,
          DType kv_dtype)
      : config_(config),
        backend_(*backend),
        kv_dtype_(kv_dtype),
        transformer_(config, std::move(backend), std::move(weights), nullptr) {}

  std::int32_t vocab_size() const override { return config_.vocab_size; }
  std::int32_t embedding_size() const override { return config_.hidden_size; }
  std::int32_t max_sequence_tokens() const override { return config_.max_context_tokens; }

  void embed(const Batch& batch, std::span<float> embeddings) override {
    plan(batch);
    if (num_blocks_ > max_blocks_) {
      max_blocks_ = 0;  // if the next line throws
      transformer_.replace_cache(backend_.make_kv_cache(cache_shape(num_blocks_)));
      max_blocks_ = num_blocks_;
    }
    transformer_.embed(batch_, embeddings);
  }

 private:
  // The batch with blocks of its own, one after the other.
  void plan(const Batch& batch) {
    batch_.clear();
    batch_.token_ids = batch.token_ids;
    batch_.positions = batch.positions;
    batch_.cu_seqlens = batch.cu_seqlens;
    num_blocks_ = 0;
    for (std::size_t s = 0; s + 1 < batch.cu_seqlens.size(); ++s) {
      const std::int32_t tokens = batch.cu_seqlens[s + 1] - batch.cu_seqlens[s];
      if (tokens < 1 || tokens > config_.max_context_tokens) {
        throw std::invalid_argument("a sequence of " + std::to_string(tokens) +
                                    " tokens cannot be encoded");
      }
      batch_.context_lens.push_back(tokens);
      batch_.max_blocks = std::max(batch_.max_blocks, blocks_of(tokens));
    }
    for (const std::int32_t tokens : batch_.context_lens) {
      for (std::int32_t p = 0; p < tokens; ++p) {
        batch_.slot_mapping.push_back(num_blocks_ * kBlockTokens + p);
      }
      for (std::int32_t b = 0; b < batch_.max_blocks; ++b) {
        batch_.block_tables.push_back(b < blocks_of(tokens) ? num_blocks_ + b : kNoBlock);
      }
      num_blocks_ += blocks_of(tokens);
    }
  }

  static std::int32_t blocks_of(std::int32_t tokens) {
    return (tokens + kBlockTokens - 1) / kBlockTokens;
  }

  KvCacheShape cache_shape(std::int32_t num_blocks) const {
    return {1, num_blocks, kBlockTokens, config_.num_kv_heads, config_.head_dim, kv_dtype_};
  }

  ModelConfig config_;
  CpuBackend& backend_;  // the transformer's
  DType kv_dtype_;
  Transformer transformer_;
  Batch batch_;
  std::int32_t num_blocks_ = 0;  // of batch_
  std::int32_t max_blocks_ = 0;  // of the transformer's cache
};

}  // namespace

std::unique_ptr<EncoderRunner> make_cpu_encoder(const TensorSource& tensors,
                                                const ModelConfig& config,
                                                const CpuOptions& options) {
  if (!config.encoder)
    tensors.fail("a model of architecture '" + config.architecture +
                 "' generates text and makes no embeddings");
  check_cpu_shapes(config);
  const CpuPlan plan = plan_cpu(config, options);
  auto backend = std::make_unique<CpuBackend>(plan.dtype, plan.threads, options.instruction_set,
                                              options.deterministic);
  Weights weights = load_weights(tensors, config, backend.get());
  return std::make_unique<Encoder>(config, std::move(backend), std::move(weights), plan.kv_dtype);
}

}  // namespace batchmill
