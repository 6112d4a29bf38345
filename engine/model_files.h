// What a model's files say, whatever their format: one reader per format fills it, Model makes the
// tokenizer and the chat template of it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/generation_defaults.h"
#include "engine/model_config.h"
#include "engine/tensor_source.h"
#include "engine/tokenizer.h"

namespace batchmill {

struct ModelFiles {
  ModelConfig config;
  std::unique_ptr<TensorSource> tensors;
  std::optional<Vocabulary> vocabulary;
  std::optional<std::string> chat_template;
  std::vector<TokenId> eos_token_ids;  // those the files name; each in the vocabulary
  GenerationDefaults generation_defaults;
  std::uint64_t content_hash = 0;  // over everything that decides what the model answers
};

// A GGUF file. Throws std::system_error (no such file) or std::runtime_error that names the file
// and the place where it is damaged, or what is not supported.
ModelFiles read_gguf_model(const std::string& path);

// A Hugging Face folder: config.json, safetensors, tokenizer, template and generation settings.
// Throws as above.
ModelFiles read_model_folder(const std::string& path);

}  // namespace batchmill
