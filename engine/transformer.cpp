#include "engine/transformer.h"

#include <functional>
#include <stdexcept>
#include <utility>

#include "engine/layout.h"

namespace batchmill {

Transformer::Transformer(const ModelConfig& config, std::unique_ptr<Backend> backend,
                         Weights weights, std::unique_ptr<KvCache> cache)
    : config_(config),
      heads_{config.num_heads, config.latent ? 0 : config.num_kv_heads, config.head_dim},
      backend_(std::move(backend)),
      weights_(std::move(weights)),
      cache_(std::move(cache)) {}

Transformer::~Transformer() = default;

void Transformer::check_room(std::size_t num_rows, std::span<float> logits) const {
  if (logits.size() < num_rows * static_cast<std::size_t>(config_.vocab_size)) {
    throw std::invalid_argument("the room for logits is too small");
  }
}

void Transformer::forward(const Batch& batch, std::span<float> logits) {
  const auto num_logits = static_cast<std::int32_t>(batch.logits_rows.size());
  check_room(batch.logits_rows.size(), logits);
  run(batch, logits);
  if (num_logits == 0 || is_scanned_) return;
  const Tensor output = act_.logits.first_rows(num_logits);
  backend_->download(output, logits.first(static_cast<std::size_t>(num_logits) * output.cols));
}

void Transformer::begin(const Batch& batch, std::span<const Draw> draws) {
  run(batch, {});
  const auto num_logits = static_cast<std::int32_t>(batch.logits_rows.size());
  backend_->begin_draws(act_.logits.first_rows(num_logits), draws);
}

void Transformer::end(std::span<Draw> draws, std::span<const std::int32_t> host_rows,
                      std::span<float> logits) {
  check_room(host_rows.size(), logits);
  backend_->end_draws(draws);
  // Rows beside each other come at once.
  for (std::size_t begin = 0; begin < host_rows.size();) {
    std::size_t end = begin + 1;
    while (end < host_rows.size() && host_rows[end] == host_rows[end - 1] + 1) ++end;
    const Tensor rows{act_.logits.row<float>(host_rows[begin]), DType::kF32,
                      static_cast<std::int32_t>(end - begin), config_.vocab_size};
    const std::size_t cols = static_cast<std::size_t>(config_.vocab_size);
    backend_->download(rows, logits.subspan(begin * cols, (end - begin) * cols));
    begin = end;
  }
}

void Transformer::run(const Batch& batch, std::span<float> host) {
  const std::int32_t num_rows = batch.num_tokens();
  const auto num_logits = static_cast<std::int32_t>(batch.logits_rows.size());
  reserve_rows(num_rows);
  reserve_logits_rows(num_logits);
  begin_step(batch);
  is_scanned_ = false;
  if (num_rows == 0) return;
  const auto operations = [&](std::int32_t rows) {
    num_logits_ = num_logits > 0 ? num_logits + rows - num_rows : 0;
    run_layers(rows);
    if (num_logits > 0) compute_logits(host);
  };
  backend_->run_step(num_rows, std::cref(operations));  // a reference takes no memory
}

void Transformer::embed(const Batch& batch, std::span<float> embeddings) {
  const std::int32_t num_seqs = batch.num_seqs();
  if (embeddings.size() < static_cast<std::size_t>(num_seqs) * config_.hidden_size) {
    throw std::invalid_argument("the room for embeddings is too small");
  }
  reserve_rows(batch.num_tokens());
  reserve_logits_rows(num_seqs);
  begin_step(batch);
  if (num_seqs == 0) return;
  num_logits_ = 0;
  run_layers(batch.num_tokens());
  const Tensor pooled = act_.last.first_rows(num_seqs);
  backend_->mean_rows(act_.hidden, pooled);
  backend_->download(pooled, embeddings.first(static_cast<std::size_t>(num_seqs) * pooled.cols));
}

void Transformer::begin_step(const Batch& batch) {
  backend_->begin_step(batch, heads_);
  backend_->copy_blocks(*cache_);
}

void Transformer::run_layers(std::int32_t num_rows) {
  const Tensor hidden = act_.hidden.first_rows(num_rows);
  backend_->embed(weights_.embedding, config_.embedding_scale, hidden);
  if (weights_.positions.data != nullptr) backend_->add_positions(weights_.positions, hidden);
  if (weights_.embedding_norm) backend_->norm(hidden, weights_.embedding_norm, hidden);
  for (std::size_t i = 0; i < weights_.rotations.size(); ++i) {
    backend_->rotation_table(weights_.rotations[i], act_.rotations[i].first_rows(num_rows));
  }
  stream_ = hidden;
  for (std::int32_t i = 0; i < config_.num_layers; ++i) run_layer(i);
}

bool Transformer::narrows(std::int32_t index) const {
  return index == config_.num_layers - 1 && num_logits_ < stream_.rows && !config_.encoder &&
         !config_.latent && backend_->gathers_activations();
}

void Transformer::run_layer(std::int32_t index) {
  const LayerWeights& layer = weights_.layers[static_cast<std::size_t>(index)];
  const Tensor input = enter(layer.attention_norm);
  layer.latent ? attend_latent(index, input) : attend(index, input);

  const Tensor normed = enter(layer.mlp_norm);
  const std::int32_t num_rows = normed.rows;
  if (num_rows == 0) return;
  if (layer.experts) {
    backend_->add_experts(normed, *layer.experts, config_.activation, stream_);
    if (layer.up == nullptr) return;  // no shared expert
  }
  const std::int32_t inner = layer.down->in_features();
  const Tensor up{act_.up.data, act_.up.dtype, num_rows, layer.up->out_features()};
  const Tensor mlp{act_.mlp.data, act_.mlp.dtype, num_rows, inner};
  backend_->matmul(normed, *layer.up, up);
  backend_->activate(config_.activation, up, mlp);
  leave(mlp, *layer.down, layer.mlp_post_norm);
}

void Transformer::attend(std::int32_t index, const Tensor& input) {
  const LayerWeights& layer = weights_.layers[static_cast<std::size_t>(index)];
  const LayerConfig& kind = config_.layers[static_cast<std::size_t>(index)];
  const Tensor qkv = act_.qkv.first_rows(input.rows);
  const Tensor attended = act_.attended.first_rows(input.rows);
  // An encoder keeps no keys: each layer takes the place of the one before.
  const std::int32_t cached = config_.encoder ? 0 : index;
  backend_->matmul(input, *layer.qkv, qkv);
  backend_->rotate_and_store(qkv, layer.head_norms, rotations_of(index, input.rows), *cache_,
                             cached);
  const bool narrow = narrows(index);
  if (narrow && num_logits_ == 0) {
    stream_ = stream_.first_rows(0);
    return;
  }
  backend_->attention(qkv, *cache_, cached,
                      {config_.attention_scale, kind.window_tokens, !config_.encoder, narrow},
                      attended);
  if (!narrow) return leave(attended, *layer.attention_output, layer.attention_post_norm);
  const Tensor last = act_.last.first_rows(num_logits_);
  const Tensor last_attended = act_.last_attended.first_rows(num_logits_);
  backend_->gather_logits_rows(stream_, last);
  backend_->gather_logits_rows(attended, last_attended);
  stream_ = last;
  leave(last_attended, *layer.attention_output, layer.attention_post_norm);
}

// In absorbed form: a head's query is taken to the latent space, where the cached row is its key
// and value, and what it attends to back from there.
void Transformer::attend_latent(std::int32_t index, const Tensor& input) {
  const LayerWeights& layer = weights_.layers[static_cast<std::size_t>(index)];
  const LatentWeights& latent = *layer.latent;
  const std::int32_t rows = input.rows;
  const Tensor rotations = rotations_of(index, rows);
  const Tensor queries = act_.queries.first_rows(rows);
  if (latent.query_down != nullptr) {
    const Tensor low = act_.query_low.first_rows(rows);
    const Tensor normed = act_.query_normed.first_rows(rows);
    backend_->matmul(input, *latent.query_down, low);
    backend_->norm(low, latent.query_norm, normed);
    backend_->matmul(normed, *latent.query, queries);
  } else {
    backend_->matmul(input, *latent.query, queries);
  }
  const Tensor row = act_.latent.first_rows(rows);
  backend_->matmul(input, *latent.key_value_down, row);
  backend_->store_latent(row, latent.key_value_norm, rotations, *cache_, index);

  const Tensor absorbed = act_.latent_queries.first_rows(rows);
  const Tensor mixed = act_.latent_attended.first_rows(rows);
  const Tensor attended = act_.attended.first_rows(rows);
  backend_->multiply_heads(queries, latent.query_to_latent, absorbed);
  backend_->rotate_heads(queries, rotations, absorbed);
  backend_->latent_attention(absorbed, *cache_, index, config_.attention_scale, mixed);
  backend_->multiply_heads(mixed, latent.latent_to_value, attended);
  leave(attended, *layer.attention_output, layer.attention_post_norm);
}

Tensor Transformer::rotations_of(std::int32_t index, std::int32_t num_rows) const {
  if (act_.rotations.empty()) return {};
  const LayerConfig& layer = config_.layers[static_cast<std::size_t>(index)];
  return act_.rotations[static_cast<std::size_t>(layer.rope)].first_rows(num_rows);
}

Tensor Transformer::enter(const Norm& norm) {
  const Tensor normed = act_.normed.first_rows(stream_.rows);
  if (norm) {
    backend_->norm(stream_, norm, normed);
  } else {
    backend_->convert(stream_, normed);
  }
  return normed;
}

void Transformer::leave(const Tensor& input, const Matrix& weight, const Norm& post_norm) {
  if (config_.norm_placement == NormPlacement::kAround) {
    const Tensor branch = act_.branch.first_rows(input.rows);
    backend_->matmul(input, weight, branch);
    backend_->norm_add(branch, post_norm, stream_);
    return;
  }
  backend_->matmul_add(input, weight, stream_);
  if (post_norm) backend_->norm(stream_, post_norm, stream_);
}

void Transformer::compute_logits(std::span<float> host) {
  const Tensor last = act_.last.first_rows(num_logits_);
  const Tensor normed = act_.normed.first_rows(num_logits_);
  const Tensor output = act_.logits.first_rows(num_logits_);
  if (stream_.data != last.data) backend_->gather_logits_rows(stream_, last);
  backend_->norm(last, weights_.output_norm, normed);
  is_scanned_ = !host.empty() && backend_->matmul_to_host(normed, *weights_.output, host, &scan_);
  if (!is_scanned_) backend_->matmul(normed, *weights_.output, output);
}

void Transformer::reserve_rows(std::int32_t rows) {
  const std::int32_t padded = backend_->padded_rows(rows);
  if (padded <= act_.max_rows) return;
  const DType dtype = backend_->activation_dtype();
  const bool around = config_.norm_placement == NormPlacement::kAround;
  const std::int32_t inner = config_.widest_mlp();
  void* base = nullptr;
  for (int pass = 0; pass < 2; ++pass) {
    Layout layout(base);
    act_.hidden = layout.add(DType::kF32, padded, config_.hidden_size);
    act_.branch = layout.add(DType::kF32, padded, around ? config_.hidden_size : 0);
    act_.rotations.clear();
    for (std::size_t i = 0; i < config_.ropes.size(); ++i) {
      act_.rotations.push_back(layout.add(DType::kF32, padded, config_.rotated_dim()));
    }
    act_.normed = layout.add(dtype, padded, config_.hidden_size);
    if (config_.latent) {
      lay_out_latent(&layout, padded);
    } else {
      act_.qkv = layout.add(dtype, padded, heads_.qkv_cols());
      act_.attended = layout.add(dtype, padded, heads_.num_heads * heads_.head_dim);
    }
    act_.up = layout.add(dtype, padded, config_.gated_mlp ? 2 * inner : inner);
    act_.mlp = layout.add(dtype, padded, inner);
    if (pass == 0) {
      act_.row_memory.reset();
      act_.max_rows = 0;
      act_.row_memory = backend_->allocate(layout.size_bytes());
      base = act_.row_memory->data();
    }
  }
  act_.max_rows = padded;
}

void Transformer::lay_out_latent(Layout* layout, std::int32_t rows) {
  const LatentAttention& latent = *config_.latent;
  const DType dtype = backend_->activation_dtype();
  const std::int32_t heads = config_.num_heads;
  act_.query_low = layout->add(DType::kF32, rows, latent.q_lora_rank);
  act_.query_normed = layout->add(dtype, rows, latent.q_lora_rank);
  act_.queries = layout->add(dtype, rows, heads * config_.head_dim);
  act_.latent = layout->add(DType::kF32, rows, latent.cached_dim());
  act_.latent_queries = layout->add(dtype, rows, heads * latent.cached_dim());
  act_.latent_attended = layout->add(dtype, rows, heads * latent.kv_lora_rank);
  act_.attended = layout->add(dtype, rows, heads * latent.value_dim);
}

void Transformer::reserve_logits_rows(std::int32_t rows) {
  const std::int32_t padded = backend_->padded_rows(rows);
  if (padded <= act_.max_logits_rows) return;
  void* base = nullptr;
  for (int pass = 0; pass < 2; ++pass) {
    Layout layout(base);
    act_.last = layout.add(DType::kF32, padded, config_.hidden_size);
    act_.last_attended = layout.add(backend_->activation_dtype(), padded,
                                    config_.encoder ? 0 : heads_.num_heads * heads_.head_dim);
    act_.logits = layout.add(DType::kF32, padded, config_.encoder ? 0 : config_.vocab_size);
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
