// A model's weights in the form a backend computes with. Owned by a Transformer.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/backend.h"
#include "engine/model_config.h"

namespace batchmill {

class TensorSource;

// Latent attention. R: rank of the cached vector, C = R + rotated dimensions. Rotated rows are in
// half-split order.
struct LatentWeights {
  std::unique_ptr<Matrix> query_down;  // [q rank, H]; null: queries are projected directly
  Norm query_norm;  // [q rank]
  std::unique_ptr<Matrix> query;  // [heads × (nope + rope), q rank or H]
  std::unique_ptr<Matrix> key_value_down;  // [C, H]
  Norm key_value_norm;  // [R]
  std::vector<std::unique_ptr<Matrix>> query_to_latent;  // [heads] of [R, nope]
  std::vector<std::unique_ptr<Matrix>> latent_to_value;  // [heads] of [value dim, R]
};

// I: width of the MLP, D: head size. What a model does not have is null or without data.
struct LayerWeights {
  Norm attention_norm;
  std::unique_ptr<Matrix>
      qkv;  // [(heads + 2 kv heads) × D, H], rows of q and k in half-split order
  HeadNorms head_norms;
  std::unique_ptr<LatentWeights> latent;  // instead of the two above
  std::unique_ptr<Matrix> attention_output;  // [H, heads × D]
  Norm attention_post_norm;
  Norm mlp_norm;
  std::unique_ptr<Matrix> up;  // [2 I, H]: gate, then up; not gated: [I, H]
  std::unique_ptr<Matrix> down;  // [H, I]
  Norm mlp_post_norm;
  std::unique_ptr<Experts> experts;  // beside `up` and `down`, which are then those of the shared
};

struct Weights {
  Tensor embedding;  // act [V, H]
  Tensor positions;  // f32 [max_context_tokens, H], learned or sinusoidal, with token type 0
  Norm embedding_norm;
  std::vector<LayerWeights> layers;
  Norm output_norm;
  std::unique_ptr<Matrix> output;  // [V, H]
  std::vector<Rotation> rotations;  // beside ModelConfig::ropes

  std::vector<std::unique_ptr<DeviceBuffer>> buffers;  // what the tensors above point into
};

// Checks that the source holds exactly the tensors of its architecture, in shapes that fit `config`
// and types that can be read. Throws std::runtime_error naming the tensor.
void check_weights(const TensorSource& tensors, const ModelConfig& config);

// Reads the weights onto the backend. Checks as above.
Weights load_weights(const TensorSource& tensors, const ModelConfig& config, Backend* backend);

// Frequencies [D/2] of one of config.ropes, divided by factor i of tensor rope_freqs.weight if the
// source has it (GGUF's form of llama3 scaling).
std::vector<float> rope_frequencies(const TensorSource& tensors, const ModelConfig& config,
                                    std::size_t rope);

}  // namespace batchmill
