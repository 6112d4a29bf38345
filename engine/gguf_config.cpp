#include "engine/gguf_config.h"

#include <cmath>

namespace batchmill {
namespace {

constexpr std::int64_t kMaxLayers = 1024;
constexpr std::int64_t kMaxWidth = 1 << 20;  // hidden and intermediate size
constexpr std::int64_t kMaxVocabulary = 1 << 24;
constexpr std::int64_t kMaxHeads = 4096;
constexpr std::int64_t kMaxHeadDim = 1024;
constexpr std::int64_t kMaxContext = 1 << 28;

// Typed access to the keys of one architecture.
class ConfigReader {
 public:
  explicit ConfigReader(const GgufFile* file, const std::string& architecture)
      : file_(*file), prefix_(architecture + ".") {}

  std::int32_t required(const std::string& key, std::int64_t most) const {
    const auto value = file_.integer(prefix_ + key);
    if (!value) file_.fail("metadata '" + prefix_ + key + "' is missing");
    return in_range(key, *value, most);
  }

  std::int32_t integer(const std::string& key, std::int64_t otherwise, std::int64_t most) const {
    return in_range(key, file_.integer(prefix_ + key).value_or(otherwise), most);
  }

  float positive(const std::string& key, double otherwise) const {
    const double value = file_.number(prefix_ + key).value_or(otherwise);
    if (!(value > 0) || !std::isfinite(static_cast<float>(value))) {
      file_.fail("metadata '" + prefix_ + key + "' is " + std::to_string(value));
    }
    return static_cast<float>(value);
  }

  std::string string(const std::string& key, const std::string& otherwise) const {
    return std::string(file_.string(prefix_ + key).value_or(otherwise));
  }

  std::int64_t count(const std::string& key) const {
    return file_.integer(prefix_ + key).value_or(0);
  }

 private:
  std::int32_t in_range(const std::string& key, std::int64_t value, std::int64_t most) const {
    if (value < 1 || value > most) {
      file_.fail("metadata '" + prefix_ + key + "' is " + std::to_string(value) +
                 ", outside 1 to " + std::to_string(most));
    }
    return static_cast<std::int32_t>(value);
  }

  const GgufFile& file_;
  std::string prefix_;
};

std::int32_t read_vocab_size(const GgufFile& file) {
  const GgufTensor& embedding = file.tensor("token_embd.weight");
  const std::uint64_t rows = embedding.num_rows();
  if (rows > static_cast<std::uint64_t>(kMaxVocabulary)) {
    file.fail("tensor 'token_embd.weight' has " + std::to_string(rows) + " rows");
  }
  const GgufValue* tokens = file.find("tokenizer.ggml.tokens");
  if (tokens != nullptr) {
    const auto* array = std::get_if<GgufArray>(&tokens->value);
    if (array == nullptr || array->size > rows) {
      file.fail("metadata 'tokenizer.ggml.tokens' does not fit tensor 'token_embd.weight' with " +
                std::to_string(rows) + " rows");
    }
  }
  return static_cast<std::int32_t>(rows);
}

RopeConfig read_rope(const GgufFile& file, const ConfigReader& reader) {
  RopeConfig rope;
  rope.theta = reader.positive("rope.freq_base", 10000.0);
  const std::string scaling = reader.string("rope.scaling.type", "none");
  if (scaling == "linear") {
    rope.scaling = RopeScaling::kLinear;
    rope.factor = reader.positive("rope.scaling.factor", 1.0);
  } else if (scaling != "none") {
    file.fail("rope scaling '" + scaling + "' is not supported");
  }
  return rope;
}

}  // namespace

ModelConfig read_model_config(const GgufFile& file) {
  ModelConfig config;
  const auto architecture = file.string("general.architecture");
  if (!architecture) file.fail("metadata 'general.architecture' is missing");
  config.architecture = *architecture;
  if (config.architecture != "llama") {
    file.fail("architecture '" + config.architecture + "' is not supported");
  }
  config.name = file.string("general.name").value_or("");

  const ConfigReader reader(&file, config.architecture);
  config.num_layers = reader.required("block_count", kMaxLayers);
  config.max_context_tokens = reader.required("context_length", kMaxContext);
  config.hidden_size = reader.required("embedding_length", kMaxWidth);
  config.intermediate_size = reader.required("feed_forward_length", kMaxWidth);
  config.num_heads = reader.required("attention.head_count", kMaxHeads);
  config.num_kv_heads = reader.integer("attention.head_count_kv", config.num_heads, kMaxHeads);
  if (config.num_heads % config.num_kv_heads != 0) {
    file.fail(std::to_string(config.num_heads) + " heads cannot share " +
              std::to_string(config.num_kv_heads) + " key/value heads evenly");
  }
  const std::int64_t derived_head_dim = config.hidden_size / config.num_heads;
  config.head_dim = reader.integer("attention.key_length", derived_head_dim, kMaxHeadDim);
  if (reader.integer("attention.value_length", config.head_dim, kMaxHeadDim) != config.head_dim) {
    file.fail("keys and values of different head sizes are not supported");
  }
  const std::int32_t rope_dim =
      reader.integer("rope.dimension_count", config.head_dim, kMaxHeadDim);
  if (rope_dim != config.head_dim || config.head_dim % 2 != 0) {
    file.fail("rotating " + std::to_string(rope_dim) + " of " + std::to_string(config.head_dim) +
              " head dimensions is not supported");
  }
  config.attention_scale = 1.0f / std::sqrt(static_cast<float>(config.head_dim));
  config.norm_eps = reader.positive("attention.layer_norm_rms_epsilon", 1e-5);
  config.ropes = {read_rope(file, reader)};
  config.interleaved_qk_rows = true;
  config.layers.resize(static_cast<std::size_t>(config.num_layers));
  if (reader.count("expert_count") > 0) file.fail("mixtures of experts are not supported");
  const std::int64_t window = reader.count("attention.sliding_window");
  if (window > 0 && window < config.max_context_tokens) {
    file.fail("sliding-window attention is not supported");
  }

  config.vocab_size = read_vocab_size(file);
  config.tied_embeddings = file.find_tensor("output.weight") == nullptr;
  return config;
}

}  // namespace batchmill
