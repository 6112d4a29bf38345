// A model file, opened: what preparing lines needs (tokenizer, template, shapes, fingerprint). The
// weights stay memory-mapped until a backend loads them. Immutable and safe to share.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/chat_template.h"
#include "engine/generation_defaults.h"
#include "engine/model_config.h"
#include "engine/tensor_source.h"
#include "engine/tokenizer.h"

namespace batchmill {

class Model {
 public:
  // Opens `path`. Throws std::system_error (no such file) or std::runtime_error that names the file
  // and the place where it is damaged, or what is not supported.
  static std::shared_ptr<const Model> open(const std::string& path);
  ~Model();

  const std::string& path() const;
  const ModelConfig& config() const;
  const TensorSource& tensors() const;

  const Tokenizer* tokenizer() const;  // null if the file holds none
  const ChatTemplate* chat_template() const;  // null if the file holds none
  const std::vector<TokenId>& eos_token_ids() const;
  const GenerationDefaults& generation_defaults() const;

  // 16 hex digits over weights, tokenizer, template and generation settings (XXH64-quality, not
  // cryptographic). The same bytes give the same fingerprint wherever the file lies.
  const std::string& fingerprint() const;

 private:
  Model();
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace batchmill
