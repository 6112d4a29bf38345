#include "engine/gguf_config.h"

#include "engine/gguf_families.h"
#include "engine/gguf_keys.h"

namespace batchmill {
namespace {

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

}  // namespace

ModelConfig read_model_config(const GgufFile& file) {
  ModelConfig config;
  const auto architecture = file.string("general.architecture");
  if (!architecture) file.fail("metadata 'general.architecture' is missing");
  config.architecture = *architecture;
  const GgufFamilyReader read_family = find_gguf_family(config.architecture);
  if (read_family == nullptr) {
    file.fail("architecture '" + config.architecture + "' is not supported");
  }
  config.name = file.string("general.name").value_or("");

  const GgufKeys keys(&file, config.architecture);
  config.num_layers = keys.required("block_count", kMaxLayers);
  config.max_context_tokens = keys.required("context_length", kMaxContext);
  config.hidden_size = keys.required("embedding_length", kMaxWidth);
  config.intermediate_size = keys.required("feed_forward_length", kMaxWidth);
  config.num_heads = keys.required("attention.head_count", kMaxHeads);
  config.num_kv_heads = keys.integer("attention.head_count_kv", config.num_heads, kMaxHeads);
  if (config.num_heads % config.num_kv_heads != 0) {
    file.fail(std::to_string(config.num_heads) + " heads cannot share " +
              std::to_string(config.num_kv_heads) + " key/value heads evenly");
  }
  config.layers.resize(static_cast<std::size_t>(config.num_layers));
  config.vocab_size = read_vocab_size(file);
  config.tied_embeddings = file.find_tensor("output.weight") == nullptr;
  read_family(keys, &config);
  return config;
}

}  // namespace batchmill
