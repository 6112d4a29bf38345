#include "engine/weights.h"

#include <set>
#include <string>

#include "engine/rope.h"
#include "engine/tensor_source.h"
#include "engine/weight_specs.h"

namespace batchmill {
namespace {

constexpr const char* kRopeFactors = "rope_freqs.weight";

void check_tensor(const TensorSource& tensors, const TensorSpec& spec) {
  const TensorInfo* tensor = tensors.find(spec.name);
  if (tensor == nullptr) tensors.fail("tensor '" + spec.name + "' is missing");
  if (!tensor->readable) {
    tensors.fail("tensor '" + spec.name + "' has type " + tensor->type +
                 ", which is not supported");
  }
  const bool rows_fit = spec.more_rows ? tensor->rows >= spec.rows : tensor->rows == spec.rows;
  if (!rows_fit || tensor->cols != spec.cols) {
    tensors.fail("tensor '" + spec.name + "' is " + std::to_string(tensor->rows) + " rows of " +
                 std::to_string(tensor->cols) + ", the metadata say " + std::to_string(spec.rows) +
                 " of " + std::to_string(spec.cols));
  }
}

}  // namespace

void check_weights(const TensorSource& tensors, const ModelConfig& config) {
  std::set<std::string, std::less<>> known;
  for (const TensorSpec& spec : expected_tensors(config, find_division(tensors))) {
    check_tensor(tensors, spec);
    known.insert(spec.name);
  }
  if (!config.ropes.empty() && tensors.find(kRopeFactors) != nullptr) {
    check_tensor(tensors, {kRopeFactors, 1, config.rotated_dim() / 2});
    known.insert(kRopeFactors);
  }
  for (const TensorInfo& tensor : tensors.tensors()) {
    if (!known.contains(tensor.name)) {
      tensors.fail("tensor '" + tensor.name + "' is not part of architecture '" +
                   config.architecture + "' as it is supported");
    }
  }
}

std::vector<float> rope_frequencies(const TensorSource& tensors, const ModelConfig& config,
                                    std::size_t rope) {
  std::vector<float> frequencies = rope_frequencies(config.ropes[rope], config.rotated_dim());
  const TensorInfo* tensor = rope == 0 ? tensors.find(kRopeFactors) : nullptr;
  if (tensor == nullptr) return frequencies;
  std::vector<float> factors(frequencies.size());
  tensors.read_row(*tensor, 0, factors.data());
  for (std::size_t i = 0; i < frequencies.size(); ++i) {
    if (!(factors[i] > 0)) {
      tensors.fail("tensor 'rope_freqs.weight' holds a factor that is not > 0");
    }
    frequencies[i] /= factors[i];
  }
  return frequencies;
}

}  // namespace batchmill
