// A model's weights in the form a backend computes with. Owned by a Transformer.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/backend.h"
#include "engine/model_config.h"

namespace batchmill {

class TensorSource;

// Norm weights are f32 [1, H].
struct LayerWeights {
  Tensor attention_norm;
  std::unique_ptr<Matrix>
      qkv;  // [(heads + 2 kv heads) × D, H], rows of q and k in half-split order
  std::unique_ptr<Matrix> attention_output;  // [H, heads × D]
  Tensor mlp_norm;
  std::unique_ptr<Matrix> gate_up;  // [2 I, H]: gate, then up
  std::unique_ptr<Matrix> down;  // [H, I]
};

struct Weights {
  Tensor embedding;  // act [V, H]
  std::vector<LayerWeights> layers;
  Tensor output_norm;
  std::unique_ptr<Matrix> output;  // [V, H]
  Tensor rope_frequencies;  // f32 [1, D/2], radians per position

  std::vector<std::unique_ptr<DeviceBuffer>> buffers;  // what the tensors above point into
};

// Checks that the source holds exactly the tensors of its architecture, in shapes that fit `config`
// and types that can be read. Throws std::runtime_error naming the tensor.
void check_weights(const TensorSource& tensors, const ModelConfig& config);

// Reads the weights onto the backend. Checks as above.
Weights load_weights(const TensorSource& tensors, const ModelConfig& config, Backend* backend);

// Rotation frequencies [D/2]: theta^(−2i/D) ÷ linear factor ÷ factor i of tensor rope_freqs.weight.
std::vector<float> rope_frequencies(const TensorSource& tensors, const ModelConfig& config);

}  // namespace batchmill
