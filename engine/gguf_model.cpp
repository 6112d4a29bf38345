#include <stdexcept>

#include "engine/gguf_config.h"
#include "engine/gguf_tensors.h"
#include "engine/gguf_vocabulary.h"
#include "engine/model_files.h"

namespace batchmill {
namespace {

std::vector<TokenId> read_end_tokens(const GgufFile& file, std::int32_t vocab_size) {
  std::vector<TokenId> ids;
  for (const char* key : {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                          "tokenizer.ggml.eom_token_id"}) {
    const auto id = file.integer(key);
    if (!id) continue;
    if (*id < 0 || *id >= vocab_size) {
      file.fail("metadata '" + std::string(key) + "' is " + std::to_string(*id) +
                ", the vocabulary has " + std::to_string(vocab_size) + " tokens");
    }
    ids.push_back(static_cast<TokenId>(*id));
  }
  return ids;
}

GenerationDefaults read_generation_defaults(const GgufFile& file) {
  const std::string prefix = "general.sampling.";
  const auto real = [&](const char* key, double least, double most) -> std::optional<float> {
    const auto value = file.number(prefix + key);
    if (!value) return std::nullopt;
    if (!(*value >= least && *value <= most)) {
      file.fail("metadata '" + prefix + key + "' is " + std::to_string(*value));
    }
    return static_cast<float>(*value);
  };
  GenerationDefaults defaults;
  defaults.temperature = real("temp", 0.0, 100.0);
  defaults.top_p = real("top_p", 1e-6, 1.0);
  defaults.min_p = real("min_p", 0.0, 1.0);
  defaults.repetition_penalty = real("penalty_repeat", 1e-3, 100.0);
  if (const auto top_k = real("top_k", 0.0, 1e9)) {
    defaults.top_k = static_cast<std::int32_t>(*top_k);
  }
  return defaults;
}

}  // namespace

ModelFiles read_gguf_model(const std::string& path) {
  const auto file = std::make_shared<const GgufFile>(path);
  ModelFiles files;
  files.config = read_model_config(*file);
  files.tensors = std::make_unique<GgufTensors>(file);
  files.vocabulary = read_vocabulary(*file);
  if (const auto text = file->string("tokenizer.chat_template")) files.chat_template = *text;
  files.eos_token_ids = read_end_tokens(*file, files.config.vocab_size);
  files.generation_defaults = read_generation_defaults(*file);
  // The file holds all of them: weights, tokenizer, template and generation settings.
  files.content_hash = file->content_hash();
  return files;
}

}  // namespace batchmill
