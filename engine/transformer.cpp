#include "engine/transformer.h"

#include <stdexcept>
#include <utility>

namespace batchmill {
namespace {

constexpr std::size_t kAlignment = 64;

// Lays tensors one after the other into one buffer: first measures, then places.
class Layout {
 public:
  Tensor add(void* base, DType dtype, std::int32_t rows, std::int32_t cols) {
    const Tensor tensor{base == nullptr ? nullptr : static_cast<std::byte*>(base) + size_bytes_,
                        dtype, rows, cols};
    size_bytes_ += (tensor.bytes() + kAlignment - 1) / kAlignment * kAlignment;
    return tensor;
  }
  std::size_t size_bytes() const { return size_bytes_; }

 private:
  std::size_t size_bytes_ = 0;
};

}  // namespace

Transformer::Transformer(const ModelConfig& config, std::unique_ptr<Backend> backend,
                         Weights weights, std::unique_ptr<KvCache> cache)
    : config_(config),
      heads_{config.num_heads, config.num_kv_heads, config.head_dim},
      backend_(std::move(backend)),
      weights_(std::move(weights)),
      cache_(std::move(cache)) {}

Transformer::~Transformer() = default;

void Transformer::forward(const Batch& batch, std::span<float> logits) {
  const std::int32_t num_rows = batch.num_tokens();
  const auto num_logits = static_cast<std::int32_t>(batch.logits_rows.size());
  if (logits.size() < static_cast<std::size_t>(num_logits) * config_.vocab_size) {
    throw std::invalid_argument("the room for logits is too small");
  }
  reserve_rows(num_rows);
  reserve_logits_rows(num_logits);
  run_layers(batch);
  if (num_logits > 0) compute_logits(num_logits, logits);
}

void Transformer::run_layers(const Batch& batch) {
  const std::int32_t num_rows = batch.num_tokens();
  backend_->begin_step(batch, heads_);
  backend_->copy_blocks(*cache_);
  if (num_rows == 0) return;
  const Tensor hidden = act_.hidden.first_rows(num_rows);
  backend_->embed(weights_.embedding, config_.embedding_scale, hidden);
  if (weights_.positions.data != nullptr) backend_->add_positions(weights_.positions, hidden);
  if (weights_.embedding_norm) backend_->norm(hidden, weights_.embedding_norm, hidden);
  for (std::size_t i = 0; i < weights_.rotations.size(); ++i) {
    backend_->rotation_table(weights_.rotations[i], act_.rotations[i].first_rows(num_rows));
  }
  for (std::int32_t i = 0; i < config_.num_layers; ++i) run_layer(i, num_rows);
}

void Transformer::run_layer(std::int32_t index, std::int32_t num_rows) {
  const LayerWeights& layer = weights_.layers[static_cast<std::size_t>(index)];
  attend(index, enter(layer.attention_norm, num_rows));

  const Tensor normed = enter(layer.mlp_norm, num_rows);
  const Tensor up = act_.up.first_rows(num_rows);
  const Tensor mlp = act_.mlp.first_rows(num_rows);
  backend_->matmul(normed, *layer.up, up);
  backend_->activate(config_.activation, up, mlp);
  leave(mlp, *layer.down, layer.mlp_post_norm);
}

void Transformer::attend(std::int32_t index, const Tensor& input) {
  const LayerWeights& layer = weights_.layers[static_cast<std::size_t>(index)];
  const LayerConfig& kind = config_.layers[static_cast<std::size_t>(index)];
  const Tensor qkv = act_.qkv.first_rows(input.rows);
  const Tensor attended = act_.attended.first_rows(input.rows);
  const Tensor rotations =
      act_.rotations.empty()
          ? Tensor{}
          : act_.rotations[static_cast<std::size_t>(kind.rope)].first_rows(input.rows);
  backend_->matmul(input, *layer.qkv, qkv);
  backend_->rotate_and_store(qkv, layer.head_norms, rotations, *cache_, index);
  backend_->attention(qkv, *cache_, index, {config_.attention_scale, kind.window_tokens}, attended);
  leave(attended, *layer.attention_output, layer.attention_post_norm);
}

Tensor Transformer::enter(const Norm& norm, std::int32_t num_rows) {
  const Tensor hidden = act_.hidden.first_rows(num_rows);
  const Tensor normed = act_.normed.first_rows(num_rows);
  if (norm) {
    backend_->norm(hidden, norm, normed);
  } else {
    backend_->convert(hidden, normed);
  }
  return normed;
}

void Transformer::leave(const Tensor& input, const Matrix& weight, const Norm& post_norm) {
  const Tensor hidden = act_.hidden.first_rows(input.rows);
  if (config_.norm_placement == NormPlacement::kAround) {
    const Tensor branch = act_.branch.first_rows(input.rows);
    backend_->matmul(input, weight, branch);
    backend_->norm_add(branch, post_norm, hidden);
    return;
  }
  backend_->matmul_add(input, weight, hidden);
  if (post_norm) backend_->norm(hidden, post_norm, hidden);
}

void Transformer::compute_logits(std::int32_t num_rows, std::span<float> logits) {
  const Tensor last = act_.last.first_rows(num_rows);
  const Tensor normed = act_.normed.first_rows(num_rows);
  const Tensor output = act_.logits.first_rows(num_rows);
  backend_->gather_logits_rows(act_.hidden, last);
  backend_->norm(last, weights_.output_norm, normed);
  backend_->matmul(normed, *weights_.output, output);
  backend_->download(output, logits.first(static_cast<std::size_t>(num_rows) * output.cols));
}

void Transformer::reserve_rows(std::int32_t rows) {
  const std::int32_t padded = backend_->padded_rows(rows);
  if (padded <= act_.max_rows) return;
  const DType dtype = backend_->activation_dtype();
  const bool around = config_.norm_placement == NormPlacement::kAround;
  const std::int32_t inner = config_.intermediate_size;
  void* base = nullptr;
  for (int pass = 0; pass < 2; ++pass) {
    Layout layout;
    act_.hidden = layout.add(base, DType::kF32, padded, config_.hidden_size);
    act_.branch = layout.add(base, DType::kF32, padded, around ? config_.hidden_size : 0);
    act_.rotations.clear();
    for (std::size_t i = 0; i < config_.ropes.size(); ++i) {
      act_.rotations.push_back(layout.add(base, DType::kF32, padded, config_.rotated_dim()));
    }
    act_.normed = layout.add(base, dtype, padded, config_.hidden_size);
    act_.qkv = layout.add(base, dtype, padded, heads_.qkv_cols());
    act_.attended = layout.add(base, dtype, padded, heads_.num_heads * heads_.head_dim);
    act_.up = layout.add(base, dtype, padded, config_.gated_mlp ? 2 * inner : inner);
    act_.mlp = layout.add(base, dtype, padded, inner);
    if (pass == 0) {
      act_.row_memory.reset();
      act_.max_rows = 0;
      act_.row_memory = backend_->allocate(layout.size_bytes());
      base = act_.row_memory->data();
    }
  }
  act_.max_rows = padded;
}

void Transformer::reserve_logits_rows(std::int32_t rows) {
  const std::int32_t padded = backend_->padded_rows(rows);
  if (padded <= act_.max_logits_rows) return;
  void* base = nullptr;
  for (int pass = 0; pass < 2; ++pass) {
    Layout layout;
    act_.last = layout.add(base, DType::kF32, padded, config_.hidden_size);
    act_.logits = layout.add(base, DType::kF32, padded, config_.vocab_size);
    if (pass == 0) {
      act_.logits_memory.reset();
      act_.max_logits_rows = 0;
      act_.logits_memory = backend_->allocate(layout.size_bytes());
      base = act_.logits_memory->data();
    }
  }
  act_.max_logits_rows = padded;
}

}  // namespace batchmill
