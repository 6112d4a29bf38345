#include "tests/cuda/step_model.h"

#include <algorithm>
#include <utility>

#include "cuda/cuda_backend.h"
#include "engine/forwarding_backend.h"
#include "engine/weights.h"

namespace batchmill::testing {

// Lets steps be run without recordings, and without their logits being sent.
class StepModel::Probe : public ForwardingBackend {
 public:
  explicit Probe(std::unique_ptr<Backend> inner) : ForwardingBackend(std::move(inner)) {}

  void run_step(std::int32_t rows, const StepOperations& operations) override {
    if (options.records) return inner().run_step(rows, operations);
    operations(is_decode_ ? padded_rows(rows) : rows);
  }
  void begin_step(const Batch& batch, const HeadShape& heads) override {
    is_decode_ = batch.num_tokens() == batch.num_seqs() && batch.num_tokens() <= kMaxRecordedRows &&
                 batch.logits_rows.size() == batch.token_ids.size();
    ForwardingBackend::begin_step(batch, heads);
  }
  void download(const Tensor& device, std::span<float> host) override {
    options.downloads ? inner().download(device, host) : inner().finish();
  }

  StepOptions options;

 private:
  bool is_decode_ = false;
};

StepModel::StepModel(const ModelShape& shape, std::int32_t num_blocks,
                     std::int32_t max_context_tokens, DType kv)
    : config_(config_of(shape, max_context_tokens)), kv_(kv) {
  greedy_.temperature = 0.0f;
  auto backend = std::make_unique<CudaBackend>(0);
  backend_ = backend.get();
  auto probe = std::make_unique<Probe>(std::move(backend));
  probe_ = probe.get();
  const RandomTensors tensors(config_);
  Weights weights = load_weights(tensors, config_, probe_);
  KvCacheShape cache;
  cache.num_layers = config_.num_layers;
  cache.num_blocks = num_blocks;
  cache.block_size_tokens = kStepBlockTokens;
  cache.num_kv_heads = config_.num_kv_heads;
  cache.head_dim = config_.head_dim;
  cache.dtype = kv;
  auto memory = probe_->make_kv_cache(cache);
  transformer_ = std::make_unique<Transformer>(config_, std::move(probe), std::move(weights),
                                               std::move(memory));
}

StepModel::~StepModel() = default;

std::int64_t StepModel::num_replayed_steps() const { return backend_->num_replayed_steps(); }

std::int64_t StepModel::num_failed_recordings() const { return backend_->num_failed_recordings(); }

void StepModel::limit_partial_rows(std::int32_t rows) { backend_->limit_partial_rows(rows); }

std::int64_t StepModel::num_shared_keys() const { return backend_->num_shared_keys(); }

void StepModel::set_options(const StepOptions& options) { probe_->options = options; }

std::int64_t StepModel::weight_bytes() const {
  const std::int64_t hidden = config_.hidden_size;
  const std::int64_t heads = std::int64_t{config_.num_heads} * config_.head_dim;
  const std::int64_t kv_heads = std::int64_t{config_.num_kv_heads} * config_.head_dim;
  const std::int64_t layer = hidden * (2 * heads + 2 * kv_heads + 3 * config_.intermediate_size);
  return 2 * (config_.num_layers * layer + hidden * config_.vocab_size);
}

double StepModel::kv_bytes(double tokens) const {
  return tokens * static_cast<double>(config_.kv_bytes_per_token(dtype_bytes(kv_)));
}

std::vector<float>& StepModel::run(const Batch& batch) {
  if (probe_->options.draws) {
    logits_.clear();
    begin(batch);
    end();
    return logits_;
  }
  logits_.resize(batch.logits_rows.size() * static_cast<std::size_t>(config_.vocab_size));
  transformer_->forward(batch, logits_);
  return logits_;
}

void StepModel::begin(const Batch& batch) {
  std::vector<Draw>& draws = under_way_.emplace_back(batch.logits_rows.size());
  for (std::size_t i = 0; i < draws.size(); ++i) {
    draws[i].context.params = &greedy_;
    draws[i].logits_row = static_cast<std::int32_t>(i);
  }
  transformer_->begin(batch, draws);
}

const std::vector<Draw>& StepModel::end() {
  drawn_ = std::move(under_way_.front());
  under_way_.pop_front();
  transformer_->end(drawn_, {}, {});
  return drawn_;
}

std::vector<StepSequence> make_sequences(const std::vector<std::int32_t>& room_tokens,
                                         std::int32_t num_blocks) {
  constexpr std::int32_t kStride = 7919;  // a prime, so that each block comes once
  std::vector<StepSequence> sequences;
  std::int64_t next = 0;
  for (const std::int32_t room : room_tokens) {
    StepSequence sequence;
    for (std::int32_t b = 0; b * kStepBlockTokens < room; ++b) {
      sequence.blocks.push_back(static_cast<BlockId>(next++ * kStride % num_blocks));
    }
    sequences.push_back(std::move(sequence));
  }
  return sequences;
}

Batch begin_batch(std::int32_t max_blocks) {
  Batch batch;
  batch.cu_seqlens = {0};
  batch.max_blocks = max_blocks;
  return batch;
}

void add_rows(StepSequence* sequence, std::int32_t rows, Batch* batch) {
  const std::int32_t end = sequence->num_computed + rows;
  for (std::int32_t position = sequence->num_computed; position < end; ++position) {
    batch->token_ids.push_back(sequence->tokens[static_cast<std::size_t>(position)]);
    batch->positions.push_back(position);
    const BlockId block = sequence->blocks[static_cast<std::size_t>(position / kStepBlockTokens)];
    batch->slot_mapping.push_back(block * kStepBlockTokens + position % kStepBlockTokens);
  }
  batch->cu_seqlens.push_back(batch->num_tokens());
  batch->context_lens.push_back(end);
  const std::size_t first = batch->block_tables.size();
  batch->block_tables.resize(first + static_cast<std::size_t>(batch->max_blocks), kNoBlock);
  std::copy_n(sequence->blocks.begin(), (end + kStepBlockTokens - 1) / kStepBlockTokens,
              batch->block_tables.begin() + static_cast<std::ptrdiff_t>(first));
  batch->logits_rows.push_back(batch->num_tokens() - 1);
  sequence->num_computed = end;
}

void add_drawn_row(StepSequence* sequence, std::int32_t draw, Batch* batch) {
  sequence->tokens.resize(static_cast<std::size_t>(sequence->num_computed));
  sequence->tokens.push_back(kNoToken);
  batch->drawn_tokens.push_back({batch->num_tokens(), draw});
  add_rows(sequence, 1, batch);
}

}  // namespace batchmill::testing
