// load_weights(): from the tensors of a file, in the file's names and orders, to the operands of a
// backend.
#include <algorithm>
#include <complex>
#include <string>

#include "engine/positions.h"
#include "engine/rope.h"
#include "engine/tensor_rows.h"
#include "engine/weight_specs.h"
#include "engine/weights.h"

namespace batchmill {
namespace {

// Files that rotate neighbours (2i, 2i + 1) hold the rows of a head in that order. This gives the
// file's row for row `row` in half-split order (i, i + D/2).
std::int64_t interleaved_row(std::int64_t row, std::int32_t head_dim) {
  const std::int64_t half = head_dim / 2;
  const std::int64_t in_head = row % head_dim;
  return row - in_head + 2 * (in_head % half) + in_head / half;
}

class Loader {
 public:
  Loader(const TensorSource& tensors, const ModelConfig& config, Backend* backend)
      : tensors_(tensors),
        config_(config),
        backend_(*backend),
        division_(find_division(tensors)),
        norm_names_(layer_norm_names(config.norm_placement)) {}

  Weights load() {
    Weights weights;
    weights_ = &weights;
    weights.embedding = load_embedding();
    weights.positions = load_positions();
    if (config_.embedding_norm) weights.embedding_norm = load_norm("token_embd_norm");
    for (std::int32_t i = 0; i < config_.num_layers; ++i) weights.layers.push_back(load_layer(i));
    for (std::size_t i = 0; i < config_.ropes.size(); ++i) {
      weights.rotations.push_back(
          {upload(rope_frequencies(tensors_, config_, i)), config_.ropes[i]});
    }
    if (config_.encoder) return weights;
    weights.output_norm = load_norm("output_norm");
    const char* output = config_.tied_embeddings ? "token_embd.weight" : "output.weight";
    weights.output = load_matrix(output, "", config_.vocab_size, config_.hidden_size);
    return weights;
  }

 private:
  Tensor load_embedding() {
    const TensorRows embedding(tensors_, "token_embd.weight");
    auto table =
        backend_.make_table(config_.vocab_size, config_.hidden_size,
                            [&](std::int64_t row, float* out) { embedding.read(row, out); });
    const Tensor tensor{table->data(), backend_.activation_dtype(), config_.vocab_size,
                        config_.hidden_size};
    weights_->buffers.push_back(std::move(table));
    return tensor;
  }

  // What is added to every embedding: the position's row and row 0 of the token types.
  Tensor load_positions() {
    const bool learned = config_.positions == PositionKind::kLearned;
    if (config_.positions == PositionKind::kRotary && config_.num_token_types == 0) return {};
    const auto cols = static_cast<std::size_t>(config_.hidden_size);
    const auto rows = static_cast<std::size_t>(config_.max_context_tokens);
    std::vector<float> table(rows * cols);
    for (std::size_t i = 0; i < rows && config_.positions == PositionKind::kSinusoidal; ++i) {
      sinusoidal_position(static_cast<std::int64_t>(i), config_.hidden_size, &table[i * cols]);
    }
    if (learned) {
      const TensorRows positions(tensors_, "position_embd.weight");
      for (std::size_t i = 0; i < rows; ++i) {
        positions.read(static_cast<std::int64_t>(i), &table[i * cols]);
      }
    }
    if (config_.num_token_types > 0) {
      const std::vector<float> type = TensorRows(tensors_, "token_types.weight").row(0);
      for (std::size_t i = 0; i < table.size(); ++i) table[i] += type[i % cols];
    }
    return upload(table, config_.max_context_tokens);
  }

  LayerWeights load_layer(std::int32_t index) {
    LayerWeights layer;
    layer.attention_norm = load_layer_norm(index, norm_names_.attention);
    layer.attention_post_norm = load_layer_norm(index, norm_names_.attention_post);
    layer.mlp_norm = load_layer_norm(index, norm_names_.mlp);
    layer.mlp_post_norm = load_layer_norm(index, norm_names_.mlp_post);
    if (config_.latent) {
      layer.latent = load_latent(index);
    } else {
      layer.qkv = load_qkv(index, &layer);
    }
    if (config_.qk_norm) {
      layer.head_norms = {load_vector(layer_tensor(index, "attn_q_norm")),
                          load_vector(layer_tensor(index, "attn_k_norm")),
                          config_.norm_eps,
                          {}};
    }
    layer.attention_output =
        load_matrix(layer_tensor(index, "attn_output"),
                    bias_name(index, "attn_output", config_.attention_output_bias),
                    config_.hidden_size, config_.num_heads * value_dim());
    if (config_.layers[static_cast<std::size_t>(index)].experts) {
      load_experts(index, &layer);
      return layer;
    }
    layer.up = load_up(index);
    layer.down =
        load_matrix(layer_tensor(index, "ffn_down"), bias_name(index, "ffn_down", config_.mlp_bias),
                    config_.hidden_size, config_.intermediate_size);
    return layer;
  }

  std::int32_t value_dim() const {
    return config_.latent ? config_.latent->value_dim : config_.head_dim;
  }

  std::unique_ptr<LatentWeights> load_latent(std::int32_t index) {
    constexpr float kLatentEpsilon = 1e-6f;  // whatever the other norms have
    const LatentAttention& latent = *config_.latent;
    auto weights = std::make_unique<LatentWeights>();
    const bool low = latent.q_lora_rank > 0;
    if (low) {
      weights->query_down =
          load_matrix(layer_tensor(index, "attn_q_a"), "", latent.q_lora_rank, config_.hidden_size);
      weights->query_norm = {
          NormKind::kRms, load_vector(layer_tensor(index, "attn_q_a_norm")), {}, kLatentEpsilon};
    }
    weights->query = load_rotated_ends(
        layer_tensor(index, low ? "attn_q_b" : "attn_q"), config_.num_heads * config_.head_dim,
        low ? latent.q_lora_rank : config_.hidden_size, config_.head_dim);
    weights->key_value_down =
        load_rotated_ends(layer_tensor(index, "attn_kv_a_mqa"), latent.cached_dim(),
                          config_.hidden_size, latent.cached_dim());
    weights->key_value_norm = {
        NormKind::kRms, load_vector(layer_tensor(index, "attn_kv_a_norm")), {}, kLatentEpsilon};
    for (std::int32_t head = 0; head < config_.num_heads; ++head) {
      load_head_maps(index, head, weights.get());
    }
    return weights;
  }

  // A matrix of parts of `part_rows` whose last rows are rotated.
  std::unique_ptr<Matrix> load_rotated_ends(const std::string& name, std::int32_t rows,
                                            std::int32_t cols, std::int32_t part_rows) {
    const TensorRows tensor(tensors_, name);
    const std::int32_t rotated = config_.latent->rope_dim;
    return backend_.make_matrix(rows, cols, [&](std::int64_t row, float* out) {
      const std::int64_t in_end = row % part_rows - (part_rows - rotated);
      const bool moved = config_.interleaved_qk_rows && in_end >= 0;
      tensor.read(moved ? row - in_end + interleaved_row(in_end, rotated) : row, out);
    });
  }

  // What takes one head's query to the latent space and what it attends to out of it.
  void load_head_maps(std::int32_t index, std::int32_t head, LatentWeights* weights) {
    const LatentAttention& latent = *config_.latent;
    const std::int32_t rank = latent.kv_lora_rank;
    if (division_.split_kv_b) {
      const TensorRows keys(tensors_, layer_tensor(index, "attn_k_b"));
      const TensorRows values(tensors_, layer_tensor(index, "attn_v_b"));
      weights->query_to_latent.push_back(backend_.make_matrix(
          rank, latent.nope_dim,
          [&](std::int64_t row, float* out) { keys.read(std::int64_t{head} * rank + row, out); }));
      weights->latent_to_value.push_back(
          backend_.make_matrix(latent.value_dim, rank, [&](std::int64_t row, float* out) {
            values.read(std::int64_t{head} * latent.value_dim + row, out);
          }));
      return;
    }
    const TensorRows both(tensors_, layer_tensor(index, "attn_kv_b"));
    const std::int64_t first = std::int64_t{head} * (latent.nope_dim + latent.value_dim);
    std::vector<std::vector<float>> keys;  // [nope][rank]: the file's rows are the map's columns
    for (std::int32_t i = 0; i < latent.nope_dim; ++i) keys.push_back(both.row(first + i));
    weights->query_to_latent.push_back(
        backend_.make_matrix(rank, latent.nope_dim, [&](std::int64_t row, float* out) {
          for (const std::vector<float>& key : keys) *out++ = key[static_cast<std::size_t>(row)];
        }));
    weights->latent_to_value.push_back(backend_.make_matrix(
        latent.value_dim, rank,
        [&](std::int64_t row, float* out) { both.read(first + latent.nope_dim + row, out); }));
  }

  // The router and the experts, and the shared ones as one MLP.
  void load_experts(std::int32_t index, LayerWeights* layer) {
    const ExpertConfig& config = *config_.experts;
    const std::int32_t hidden = config_.hidden_size;
    const std::int32_t inner = config.intermediate_size;
    auto experts = std::make_unique<Experts>();
    experts->config = config;
    std::vector<float> router;
    const TensorRows router_rows(tensors_, layer_tensor(index, "ffn_gate_inp"));
    for (std::int32_t i = 0; i < config.num_experts; ++i) {
      const std::vector<float> row = router_rows.row(i);
      router.insert(router.end(), row.begin(), row.end());
    }
    experts->router = upload(router, config.num_experts);
    experts->choice_bias = load_vector(layer_tensor(index, "exp_probs_b", ".bias"));
    for (std::int32_t i = 0; i < config.num_experts; ++i) {
      experts->gate_up.push_back(load_gate_up(layer_tensor(index, "ffn_gate_exps"),
                                              layer_tensor(index, "ffn_up_exps"),
                                              std::int64_t{i} * inner, inner, {}));
      experts->down.push_back(load_matrix(layer_tensor(index, "ffn_down_exps"), "", hidden, inner,
                                          std::int64_t{i} * hidden));
    }
    layer->experts = std::move(experts);
    if (config.num_shared_experts == 0) return;
    const std::int32_t shared = config.num_shared_experts * inner;
    layer->up = load_gate_up(layer_tensor(index, "ffn_gate_shexp"),
                             layer_tensor(index, "ffn_up_shexp"), 0, shared, {});
    layer->down = load_matrix(layer_tensor(index, "ffn_down_shexp"), "", hidden, shared);
  }

  std::unique_ptr<Matrix> load_qkv(std::int32_t index, LayerWeights* layer) {
    const std::int64_t q_rows = std::int64_t{config_.num_heads} * config_.head_dim;
    const std::int64_t kv_rows = std::int64_t{config_.num_kv_heads} * config_.head_dim;
    const auto all_rows = static_cast<std::int32_t>(q_rows + 2 * kv_rows);
    const auto file_row = [&](std::int64_t row) {
      const bool rotated = config_.interleaved_qk_rows && row < q_rows + kv_rows;
      return rotated ? interleaved_row(row, config_.head_dim) : row;
    };
    std::vector<float> bias;
    if (config_.qkv_bias) {
      std::vector<float> stored;
      for (const char* part : qkv_parts()) {
        const std::vector<float> values =
            TensorRows(tensors_, layer_tensor(index, part, ".bias")).row(0);
        stored.insert(stored.end(), values.begin(), values.end());
      }
      for (std::int64_t row = 0; row < all_rows; ++row) {
        bias.push_back(stored[static_cast<std::size_t>(file_row(row))]);
      }
      if (!config_.qk_norm) {
        layer->head_norms.key_offset = upload(
            mean_key_bias({bias.data() + q_rows, static_cast<std::size_t>(kv_rows)}, index), 1);
      }
    }
    if (division_.joined_qkv) {
      const TensorRows qkv(tensors_, layer_tensor(index, "attn_qkv"));
      return backend_.make_matrix(
          all_rows, config_.hidden_size,
          [&](std::int64_t row, float* out) { qkv.read(file_row(row), out); }, bias);
    }
    const TensorRows q(tensors_, layer_tensor(index, "attn_q"));
    const TensorRows k(tensors_, layer_tensor(index, "attn_k"));
    const TensorRows v(tensors_, layer_tensor(index, "attn_v"));
    return backend_.make_matrix(
        all_rows, config_.hidden_size,
        [&](std::int64_t row, float* out) {
          const std::int64_t source = file_row(row);
          if (row < q_rows) {
            q.read(source, out);
          } else if (row < q_rows + kv_rows) {
            k.read(source - q_rows, out);
          } else {
            v.read(source - q_rows - kv_rows, out);
          }
        },
        bias);
  }

  // What the biases of keys come to on average over the first positions, when rotated: those of
  // dimensions that turn slowly stay, and they are the large ones.
  std::vector<float> mean_key_bias(std::span<const float> bias, std::int32_t index) const {
    constexpr std::int32_t kPositions = 2048;
    std::vector<float> mean(bias.begin(), bias.end());
    if (config_.positions != PositionKind::kRotary) return mean;
    const LayerConfig& layer = config_.layers[static_cast<std::size_t>(index)];
    const RopeConfig& rope = config_.ropes[static_cast<std::size_t>(layer.rope)];
    const auto size = static_cast<std::size_t>(config_.head_dim);
    const std::vector<float> frequencies = rope_frequencies(rope, config_.head_dim);
    for (std::size_t i = 0; i < size / 2; ++i) {
      std::complex<double> turn = 0.0;
      for (std::int32_t p = 0; p < kPositions; ++p) {
        turn += std::polar(rope.attention_factor / double{kPositions}, double{frequencies[i]} * p);
      }
      for (std::size_t head = 0; head < mean.size(); head += size) {
        const auto turned = turn * std::complex<double>(bias[head + i], bias[head + i + size / 2]);
        mean[head + i] = static_cast<float>(turned.real());
        mean[head + i + size / 2] = static_cast<float>(turned.imag());
      }
    }
    return mean;
  }

  std::vector<const char*> qkv_parts() const {
    if (division_.joined_qkv) return {"attn_qkv"};
    return {"attn_q", "attn_k", "attn_v"};
  }

  std::unique_ptr<Matrix> load_up(std::int32_t index) {
    const std::int32_t inner = config_.intermediate_size;
    if (!config_.gated_mlp) {
      return load_matrix(layer_tensor(index, "ffn_up"),
                         bias_name(index, "ffn_up", config_.mlp_bias), inner, config_.hidden_size);
    }
    std::vector<float> bias;
    for (const char* part : {"ffn_gate", "ffn_up"}) {
      const std::vector<float> values = load_bias(bias_name(index, part, config_.mlp_bias));
      bias.insert(bias.end(), values.begin(), values.end());
    }
    return load_gate_up(layer_tensor(index, "ffn_gate"), layer_tensor(index, "ffn_up"), 0, inner,
                        bias);
  }

  // Rows first to first + inner of both tensors.
  std::unique_ptr<Matrix> load_gate_up(const std::string& gate_name, const std::string& up_name,
                                       std::int64_t first, std::int32_t inner,
                                       const std::vector<float>& bias) {
    const TensorRows gate(tensors_, gate_name);
    const TensorRows up(tensors_, up_name);
    return backend_.make_matrix(
        2 * inner, config_.hidden_size,
        [&](std::int64_t row, float* out) {
          row < inner ? gate.read(first + row, out) : up.read(first + row - inner, out);
        },
        bias);
  }

  // Rows first to first + rows of a tensor.
  std::unique_ptr<Matrix> load_matrix(const std::string& name, const std::string& bias,
                                      std::int32_t rows, std::int32_t cols,
                                      std::int64_t first = 0) {
    const TensorRows tensor(tensors_, name);
    return backend_.make_matrix(
        rows, cols, [&](std::int64_t row, float* out) { tensor.read(first + row, out); },
        load_bias(bias));
  }

  static std::string bias_name(std::int32_t layer, const char* part, bool exists) {
    return exists ? layer_tensor(layer, part, ".bias") : "";
  }

  std::vector<float> load_bias(const std::string& name) const {
    if (name.empty()) return {};
    return TensorRows(tensors_, name).row(0);
  }

  Norm load_layer_norm(std::int32_t layer, const char* part) {
    if (part == nullptr) return {};
    return load_norm("blk." + std::to_string(layer) + "." + part);
  }

  Norm load_norm(const std::string& name) {
    Norm norm{config_.norm, load_vector(name + ".weight"), {}, config_.norm_eps};
    if (config_.norm == NormKind::kLayer) norm.bias = load_vector(name + ".bias");
    return norm;
  }

  Tensor load_vector(const std::string& name) { return upload(TensorRows(tensors_, name).row(0)); }

  Tensor upload(const std::vector<float>& values, std::int32_t rows = 1) {
    auto buffer = backend_.allocate(values.size() * sizeof(float));
    backend_.upload(std::as_bytes(std::span(values)), buffer->data());
    const Tensor tensor{buffer->data(), DType::kF32, rows,
                        static_cast<std::int32_t>(values.size()) / rows};
    weights_->buffers.push_back(std::move(buffer));
    return tensor;
  }

  const TensorSource& tensors_;
  const ModelConfig& config_;
  Backend& backend_;
  TensorDivision division_;
  LayerNormNames norm_names_;
  Weights* weights_ = nullptr;
};

}  // namespace

Weights load_weights(const TensorSource& tensors, const ModelConfig& config, Backend* backend) {
  check_weights(tensors, config);
  return Loader(tensors, config, backend).load();
}

}  // namespace batchmill
