// What the operations of a Backend take besides tensors. Plain values; memory belongs to others.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "engine/model_config.h"
#include "engine/tensor.h"

namespace batchmill {

// A weight matrix [out, in], with or without a bias [out], in whatever layout its backend
// multiplies fastest. Products include the bias.
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

// Heads of attention: qkv rows are [num_heads | num_kv_heads | num_kv_heads] × head_dim. No kv
// heads: attention is latent.
struct HeadShape {
  std::int32_t num_heads = 0;
  std::int32_t num_kv_heads = 0;
  std::int32_t head_dim = 0;
  std::int32_t qkv_cols() const { return (num_heads + 2 * num_kv_heads) * head_dim; }
};

// A norm over rows; there is none if `weight` has no data.
struct Norm {
  NormKind kind = NormKind::kRms;
  Tensor weight;  // f32 [1, H]
  Tensor bias;  // f32 [1, H] or without data; layer norms only
  float epsilon = 0.0f;
  explicit operator bool() const { return weight.data != nullptr; }
};

// RMS norms of each head of q and k; none if the weights have no data. And what a cache of few bits
// may take off every key of a kv head after rotation: softmax does not see a constant.
struct HeadNorms {
  Tensor query;  // f32 [1, D]
  Tensor key;  // f32 [1, D]
  float epsilon = 0.0f;
  Tensor key_offset;  // f32 [1, kv heads × D] or without data
};

// How a kind of layers rotates.
struct Rotation {
  Tensor frequencies;  // f32 [1, D/2], radians per position
  RopeConfig config;  // its attention factor multiplies cosine and sine; see rope_base_growth()
};

struct AttentionRule {
  float scale = 1.0f;  // multiplies q · k
  std::int32_t window_tokens = 0;  // > 0: a row sees itself and window − 1 tokens before it
  bool causal = true;  // else a row sees its whole sequence
  bool only_logits_rows = false;  // other rows of the output may stay undefined
};

// A mixture of experts, down(act(gate) × up) each.
struct Experts {
  ExpertConfig config;
  Tensor router;  // f32 [E, H]
  Tensor choice_bias;  // f32 [1, E]
  std::vector<std::unique_ptr<Matrix>> gate_up;  // [E] of [2 I, H]
  std::vector<std::unique_ptr<Matrix>> down;  // [E] of [H, I]
};

}  // namespace batchmill
