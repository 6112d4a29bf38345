// A model's weights in the form a backend computes with. Owned by a Transformer.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/backend.h"
#include "engine/model_config.h"

namespace batchmill {

class TensorSource;

// I: width of the MLP, D: head size. What a model does not have is null or without data.
struct LayerWeights {
  Norm attention_norm;
  std::unique_ptr<Matrix>
      qkv;  // [(heads + 2 kv heads) × D, H], rows of q and k in half-split order
  HeadNorms head_norms;
  std::unique_ptr<Matrix> attention_output;  // [H, heads × D]
  Norm attention_post_norm;
  Norm mlp_norm;
  std::unique_ptr<Matrix> up;  // [2 I, H]: gate, then up; not gated: [I, H]
  std::unique_ptr<Matrix> down;  // [H, I]
  Norm mlp_post_norm;
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
