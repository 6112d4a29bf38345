#include "tests/cuda/random_model.h"

#include <algorithm>
#include <cmath>

#include "engine/weight_specs.h"

namespace batchmill::testing {
namespace {

constexpr std::size_t kNumbers = std::size_t{1} << 20;
constexpr float kStep = 0.0625f;  // numbers are whole multiples of it, of at most six bits

std::uint64_t mixed(std::uint64_t x) {
  x += 0x9E3779B97F4A7C15u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

bool ends_with(const std::string& name, std::string_view end) {
  return std::string_view(name).ends_with(end);
}

}  // namespace

ModelConfig config_of(const ModelShape& shape, std::int32_t max_context_tokens) {
  ModelConfig config;
  config.architecture = shape.qkv_bias ? "qwen2" : "llama";
  config.name = shape.name;
  config.vocab_size = shape.vocab;
  config.hidden_size = shape.hidden;
  config.intermediate_size = shape.inner;
  config.num_layers = shape.layers;
  config.num_heads = shape.heads;
  config.num_kv_heads = shape.kv_heads;
  config.head_dim = shape.dim;
  config.max_context_tokens = max_context_tokens;
  config.qkv_bias = shape.qkv_bias;
  config.tied_embeddings = shape.tied;
  config.attention_scale = 1.0f / std::sqrt(static_cast<float>(shape.dim));
  config.ropes = {RopeConfig{}};
  config.layers.assign(static_cast<std::size_t>(shape.layers), {});
  if (shape.family == ModelFamily::kGpt2) {
    config.architecture = "gpt2";
    config.norm = NormKind::kLayer;
    config.activation = Activation::kGeluTanh;
    config.gated_mlp = false;
    config.qkv_bias = config.attention_output_bias = config.mlp_bias = true;
    config.positions = PositionKind::kLearned;
    config.ropes.clear();
  } else if (shape.family == ModelFamily::kQwen3) {
    config.architecture = "qwen3";
    config.qk_norm = true;
  } else if (shape.family == ModelFamily::kGemma3) {
    config.architecture = "gemma3";
    config.norm_placement = NormPlacement::kAround;
    config.activation = Activation::kGeluTanh;
    config.qk_norm = true;
    config.embedding_scale = std::sqrt(static_cast<float>(shape.hidden));
    config.ropes.push_back(RopeConfig{.theta = 1e6f});
    for (std::size_t i = 0; i < config.layers.size(); ++i) {
      const bool is_global = i % 3 == 2;
      config.layers[i].window_tokens = is_global ? 0 : kRandomWindowTokens;
      config.layers[i].rope = is_global ? 1 : 0;
    }
  }
  return config;
}

RandomTensors::RandomTensors(const ModelConfig& config) {
  const auto longest = static_cast<std::size_t>(
      std::max({config.hidden_size, config.intermediate_size, config.num_heads * config.head_dim}));
  for (const TensorSpec& spec : expected_tensors(config, {})) {
    index_[spec.name] = tensors_.size();
    const std::size_t bytes = static_cast<std::size_t>(spec.rows * spec.cols) * 2;
    tensors_.push_back({spec.name, "BF16", true, spec.rows, spec.cols, bytes});
  }
  numbers_.resize(kNumbers + longest);
  for (std::size_t i = 0; i < numbers_.size(); ++i) {
    std::uint64_t bits = mixed(i % kNumbers);
    int sum = 0;  // of four numbers below 32: −62 … 62, variance 341
    for (int k = 0; k < 4; ++k, bits >>= 16) sum += static_cast<int>(bits & 31);
    numbers_[i] = static_cast<float>(sum - 62) * kStep;
  }
}

const TensorInfo* RandomTensors::find(std::string_view name) const {
  const auto it = index_.find(name);
  return it == index_.end() ? nullptr : &tensors_[it->second];
}

void RandomTensors::read_row(const TensorInfo& tensor, std::int64_t row, float* output) const {
  const auto which = static_cast<std::uint64_t>(&tensor - tensors_.data());
  const std::size_t begin = mixed(which << 32 | static_cast<std::uint64_t>(row)) % kNumbers;
  float base = 0.0f;
  float scale = 1.0f;
  if (ends_with(tensor.name, "norm.weight")) {
    base = 1.0f;
    scale = 0.0f;
  } else if (ends_with(tensor.name, ".bias")) {
    scale = 0.5f;
  } else {
    // A power of two, at most 1 ÷ √cols: scaling by it keeps numbers exact.
    while (scale * scale * static_cast<float>(tensor.cols) > 1.0f) scale *= 0.5f;
  }
  const float* source = numbers_.data() + begin;
  for (std::int64_t i = 0; i < tensor.cols; ++i) output[i] = base + source[i] * scale;
}

}  // namespace batchmill::testing
