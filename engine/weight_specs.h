// Which tensors a model must have, by name and shape, as its config says.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/model_config.h"
#include "engine/tensor_source.h"

namespace batchmill {

struct TensorSpec {
  std::string name;
  std::int64_t rows = 1;
  std::int64_t cols = 0;
  bool more_rows = false;  // the file may have more, which are not used
};

// "blk.3.attn_q.weight"
std::string layer_tensor(std::int32_t layer, const char* part, const char* suffix = ".weight");

// Names of the norms around a layer's two sublayers; null where there is none.
struct LayerNormNames {
  const char* attention = nullptr;
  const char* attention_post = nullptr;
  const char* mlp = nullptr;
  const char* mlp_post = nullptr;
};
LayerNormNames layer_norm_names(NormPlacement placement);

// Where files differ in how they divide a layer's matrices.
struct TensorDivision {
  bool joined_qkv = false;  // attn_qkv instead of attn_q, attn_k, attn_v
  bool split_kv_b = false;  // attn_k_b (transposed) and attn_v_b instead of attn_kv_b
};
TensorDivision find_division(const TensorSource& tensors);

std::vector<TensorSpec> expected_tensors(const ModelConfig& config, const TensorDivision& division);

}  // namespace batchmill
