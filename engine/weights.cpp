#include "engine/weights.h"

#include <atomic>
#include <cmath>
#include <set>
#include <string>

#include "engine/tensor_source.h"

namespace batchmill {
namespace {

struct TensorSpec {
  std::string name;
  std::int64_t rows = 1;
  std::int64_t cols = 0;
};

std::string layer_name(std::int32_t layer, const char* part) {
  return "blk." + std::to_string(layer) + "." + part + ".weight";
}

std::vector<TensorSpec> expected_tensors(const ModelConfig& config) {
  const std::int64_t hidden = config.hidden_size;
  const std::int64_t q_rows = std::int64_t{config.num_heads} * config.head_dim;
  const std::int64_t kv_rows = std::int64_t{config.num_kv_heads} * config.head_dim;
  const std::int64_t inner = config.intermediate_size;
  std::vector<TensorSpec> specs = {{"token_embd.weight", config.vocab_size, hidden},
                                   {"output_norm.weight", 1, hidden}};
  if (!config.tied_embeddings) specs.push_back({"output.weight", config.vocab_size, hidden});
  for (std::int32_t i = 0; i < config.num_layers; ++i) {
    specs.push_back({layer_name(i, "attn_norm"), 1, hidden});
    specs.push_back({layer_name(i, "attn_q"), q_rows, hidden});
    specs.push_back({layer_name(i, "attn_k"), kv_rows, hidden});
    specs.push_back({layer_name(i, "attn_v"), kv_rows, hidden});
    specs.push_back({layer_name(i, "attn_output"), hidden, q_rows});
    specs.push_back({layer_name(i, "ffn_norm"), 1, hidden});
    specs.push_back({layer_name(i, "ffn_gate"), inner, hidden});
    specs.push_back({layer_name(i, "ffn_up"), inner, hidden});
    specs.push_back({layer_name(i, "ffn_down"), hidden, inner});
  }
  return specs;
}

void check_tensor(const TensorSource& tensors, const TensorSpec& spec) {
  const TensorInfo* tensor = tensors.find(spec.name);
  if (tensor == nullptr) tensors.fail("tensor '" + spec.name + "' is missing");
  if (!tensor->readable) {
    tensors.fail("tensor '" + spec.name + "' has type " + tensor->type +
                 ", which is not supported");
  }
  if (tensor->rows != spec.rows || tensor->cols != spec.cols) {
    tensors.fail("tensor '" + spec.name + "' is " + std::to_string(tensor->rows) + " rows of " +
                 std::to_string(tensor->cols) + ", the metadata say " + std::to_string(spec.rows) +
                 " of " + std::to_string(spec.cols));
  }
}

// Rows of one tensor, whatever its type. Released when destroyed, and now and then on the way, so
// that a large tensor's part of the file is never in memory as a whole.
class TensorRows {
 public:
  // The tensor must be there.
  TensorRows(const TensorSource& tensors, const std::string& name)
      : tensors_(tensors),
        info_(*tensors.find(name)),
        row_bytes_(info_.bytes / static_cast<std::size_t>(info_.rows)) {}
  ~TensorRows() { tensors_.release(info_); }
  TensorRows(const TensorRows&) = delete;
  TensorRows& operator=(const TensorRows&) = delete;

  std::int64_t cols() const { return info_.cols; }

  // From any thread.
  void read(std::int64_t row, float* output) const {
    tensors_.read_row(info_, row, output);
    if (unreleased_bytes_.fetch_add(row_bytes_) + row_bytes_ < kReleaseBytes) return;
    unreleased_bytes_ = 0;
    tensors_.release(info_);
  }

 private:
  static constexpr std::size_t kReleaseBytes = 1 << 20;

  const TensorSource& tensors_;
  const TensorInfo& info_;
  std::size_t row_bytes_;
  mutable std::atomic<std::size_t> unreleased_bytes_ = 0;
};

// GGUF files of this architecture hold the rows of q and k per head in the order that rotates
// neighbours (2i, 2i + 1). This gives the file's row for row `row` in half-split order (i, i +
// D/2).
std::int64_t interleaved_row(std::int64_t row, std::int32_t head_dim) {
  const std::int64_t half = head_dim / 2;
  const std::int64_t in_head = row % head_dim;
  return row - in_head + 2 * (in_head % half) + in_head / half;
}

class Loader {
 public:
  Loader(const TensorSource& tensors, const ModelConfig& config, Backend* backend)
      : tensors_(tensors), config_(config), backend_(*backend) {}

  Weights load() {
    Weights weights;
    weights_ = &weights;
    const TensorRows embedding(tensors_, "token_embd.weight");
    const RowSource embedding_rows = [&](std::int64_t row, float* out) {
      embedding.read(row, out);
    };
    auto table = backend_.make_table(config_.vocab_size, config_.hidden_size, embedding_rows);
    weights.embedding = {table->data(), backend_.activation_dtype(), config_.vocab_size,
                         config_.hidden_size};
    weights.buffers.push_back(std::move(table));
    for (std::int32_t i = 0; i < config_.num_layers; ++i) weights.layers.push_back(load_layer(i));
    weights.output_norm = load_vector("output_norm.weight");
    const char* output = config_.tied_embeddings ? "token_embd.weight" : "output.weight";
    weights.output = load_matrix(output, config_.vocab_size, config_.hidden_size);
    weights.rope_frequencies = upload(rope_frequencies(tensors_, config_));
    return weights;
  }

 private:
  LayerWeights load_layer(std::int32_t index) {
    LayerWeights layer;
    const std::int32_t q_rows = config_.num_heads * config_.head_dim;
    layer.attention_norm = load_vector(layer_name(index, "attn_norm"));
    layer.qkv = load_qkv(index);
    layer.attention_output =
        load_matrix(layer_name(index, "attn_output"), config_.hidden_size, q_rows);
    layer.mlp_norm = load_vector(layer_name(index, "ffn_norm"));
    layer.gate_up = load_gate_up(index);
    layer.down =
        load_matrix(layer_name(index, "ffn_down"), config_.hidden_size, config_.intermediate_size);
    return layer;
  }

  std::unique_ptr<Matrix> load_qkv(std::int32_t index) {
    const TensorRows q(tensors_, layer_name(index, "attn_q"));
    const TensorRows k(tensors_, layer_name(index, "attn_k"));
    const TensorRows v(tensors_, layer_name(index, "attn_v"));
    const std::int32_t head_dim = config_.head_dim;
    const std::int64_t q_rows = std::int64_t{config_.num_heads} * head_dim;
    const std::int64_t kv_rows = std::int64_t{config_.num_kv_heads} * head_dim;
    return backend_.make_matrix(static_cast<std::int32_t>(q_rows + 2 * kv_rows),
                                config_.hidden_size, [&](std::int64_t row, float* out) {
                                  if (row < q_rows) {
                                    q.read(interleaved_row(row, head_dim), out);
                                  } else if (row < q_rows + kv_rows) {
                                    k.read(interleaved_row(row - q_rows, head_dim), out);
                                  } else {
                                    v.read(row - q_rows - kv_rows, out);
                                  }
                                });
  }

  std::unique_ptr<Matrix> load_gate_up(std::int32_t index) {
    const TensorRows gate(tensors_, layer_name(index, "ffn_gate"));
    const TensorRows up(tensors_, layer_name(index, "ffn_up"));
    const std::int32_t inner = config_.intermediate_size;
    return backend_.make_matrix(2 * inner, config_.hidden_size, [&](std::int64_t row, float* out) {
      row < inner ? gate.read(row, out) : up.read(row - inner, out);
    });
  }

  std::unique_ptr<Matrix> load_matrix(const std::string& name, std::int32_t rows,
                                      std::int32_t cols) {
    const TensorRows tensor(tensors_, name);
    return backend_.make_matrix(rows, cols,
                                [&](std::int64_t row, float* out) { tensor.read(row, out); });
  }

  Tensor load_vector(const std::string& name) {
    const TensorRows rows(tensors_, name);
    std::vector<float> values(static_cast<std::size_t>(rows.cols()));
    rows.read(0, values.data());
    return upload(values);
  }

  Tensor upload(const std::vector<float>& values) {
    auto buffer = backend_.allocate(values.size() * sizeof(float));
    backend_.upload(std::as_bytes(std::span(values)), buffer->data());
    const Tensor tensor{buffer->data(), DType::kF32, 1, static_cast<std::int32_t>(values.size())};
    weights_->buffers.push_back(std::move(buffer));
    return tensor;
  }

  const TensorSource& tensors_;
  const ModelConfig& config_;
  Backend& backend_;
  Weights* weights_ = nullptr;
};

}  // namespace

void check_weights(const TensorSource& tensors, const ModelConfig& config) {
  std::set<std::string, std::less<>> known = {"rope_freqs.weight"};
  for (const TensorSpec& spec : expected_tensors(config)) {
    check_tensor(tensors, spec);
    known.insert(spec.name);
  }
  if (tensors.find("rope_freqs.weight") != nullptr) {
    check_tensor(tensors, {"rope_freqs.weight", 1, config.head_dim / 2});
  }
  for (const TensorInfo& tensor : tensors.tensors()) {
    if (!known.contains(tensor.name)) {
      tensors.fail("tensor '" + tensor.name + "' is not part of architecture '" +
                   config.architecture + "' as it is supported");
    }
  }
}

std::vector<float> rope_frequencies(const TensorSource& tensors, const ModelConfig& config) {
  const RopeConfig& rope = config.ropes.front();
  std::vector<float> frequencies(static_cast<std::size_t>(config.head_dim / 2));
  std::vector<float> factors(frequencies.size(), 1.0f);
  if (const TensorInfo* tensor = tensors.find("rope_freqs.weight")) {
    tensors.read_row(*tensor, 0, factors.data());
  }
  for (std::size_t i = 0; i < frequencies.size(); ++i) {
    if (!(factors[i] > 0))
      tensors.fail("tensor 'rope_freqs.weight' holds a factor that is not > 0");
    const double exponent = -2.0 * static_cast<double>(i) / config.head_dim;
    const double base = std::pow(static_cast<double>(rope.theta), exponent);
    frequencies[i] = static_cast<float>(base / rope.factor / factors[i]);
  }
  return frequencies;
}

Weights load_weights(const TensorSource& tensors, const ModelConfig& config, Backend* backend) {
  check_weights(tensors, config);
  return Loader(tensors, config, backend).load();
}

}  // namespace batchmill
