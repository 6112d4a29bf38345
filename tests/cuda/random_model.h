// Models of given shapes with random weights: the same numbers on every machine, all of them exact
// in bf16. Immutable; safe to share between threads.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "engine/model_config.h"
#include "engine/tensor_source.h"

namespace batchmill::testing {

// A Llama, or with biases of q, k and v a Qwen 2; or as those families are:
enum class ModelFamily : std::uint8_t {
  kLlama,
  kGpt2,  // layer norms, biases, learned positions, an MLP without a gate
  kQwen3,  // norms of heads of q and k
  kGemma3,  // those, norms around sublayers, windows in all layers but each third
};
inline constexpr std::int32_t kRandomWindowTokens = 48;

struct ModelShape {
  const char* name;
  std::int32_t layers;
  std::int32_t hidden;
  std::int32_t inner;
  std::int32_t heads;
  std::int32_t kv_heads;
  std::int32_t dim;
  std::int32_t vocab;
  bool tied = false;
  bool qkv_bias = false;
  ModelFamily family = ModelFamily::kLlama;
};

ModelConfig config_of(const ModelShape& shape, std::int32_t max_context_tokens);

class RandomTensors : public TensorSource {
 public:
  explicit RandomTensors(const ModelConfig& config);

  const std::vector<TensorInfo>& tensors() const override { return tensors_; }
  const TensorInfo* find(std::string_view name) const override;
  void read_row(const TensorInfo& tensor, std::int64_t row, float* output) const override;
  void release(const TensorInfo&) const override {}
  const std::string& path() const override { return path_; }

 private:
  std::string path_ = "random weights";
  std::vector<TensorInfo> tensors_;
  std::map<std::string, std::size_t, std::less<>> index_;
  std::vector<float>
      numbers_;  // of variance 1, in steps that few bits hold; rows are cut out of it
};

}  // namespace batchmill::testing
