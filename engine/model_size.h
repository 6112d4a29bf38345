// How large a model is, by formula from its shapes: parameters, and bytes of keys and values per
// token. Pure functions.
#pragma once

#include <cstdint>
#include <string>

#include "engine/model_config.h"

namespace batchmill {

// Numbers that a model's files hold, by how they are used.
struct ModelSize {
  std::int64_t tables = 0;  // rows are looked up: embeddings of tokens, positions, token types
  std::int64_t matrices = 0;  // multiplied, without the output head
  std::int64_t output = 0;  // the head, multiplied too; the token embedding again if they are tied
  std::int64_t vectors = 0;  // norms and biases
  std::int64_t idle = 0;  // of the matrices: experts that one token does not use
  bool tied = false;

  std::int64_t parameters() const { return tables + matrices + vectors + (tied ? 0 : output); }
  std::int64_t active_parameters() const { return parameters() - idle; }
};

ModelSize measure_model(const ModelConfig& config);

// How the bytes of keys and values per token come about: "2 × 32 layers × 8 heads × 128 × 2 bytes".
// int8 ones, of 1 byte, have a scale of 4 bytes per token and head.
std::string kv_bytes_formula(const ModelConfig& config, std::int32_t bytes_per_element);

}  // namespace batchmill
