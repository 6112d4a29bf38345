#include "engine/model.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "engine/gguf.h"
#include "engine/gguf_vocabulary.h"
#include "engine/weights.h"

namespace batchmill {
namespace {

// How families spell the tokens that end a turn or a text. Files often name only one of them.
constexpr std::array<std::string_view, 12> kEndPieces = {"<|im_end|>",
                                                         "<|eot_id|>",
                                                         "<|eom_id|>",
                                                         "<|end|>",
                                                         "</s>",
                                                         "<|endoftext|>",
                                                         "<|end_of_text|>",
                                                         "<end_of_turn>",
                                                         "<eos>",
                                                         "<|EOT|>",
                                                         "<|END_OF_TURN_TOKEN|>",
                                                         "<｜end▁of▁sentence｜>"};

std::string hex(std::uint64_t value) {
  std::string text(16, '0');
  for (std::size_t i = text.size(); i-- > 0; value >>= 4) text[i] = "0123456789abcdef"[value & 15];
  return text;
}

// What read_vocabulary and Tokenizer::create say about a file, with its name in front.
std::unique_ptr<Tokenizer> make_tokenizer(const GgufFile& file) {
  std::optional<Vocabulary> vocabulary = read_vocabulary(file);
  if (!vocabulary) return nullptr;
  try {
    return Tokenizer::create(std::move(*vocabulary));
  } catch (const std::runtime_error& error) {
    file.fail(std::string("tokenizer: ") + error.what());
  }
}

std::unique_ptr<ChatTemplate> make_chat_template(const GgufFile& file, const Tokenizer* tokenizer) {
  const auto source = file.string("tokenizer.chat_template");
  if (!source || tokenizer == nullptr) return nullptr;
  const Vocabulary& vocabulary = tokenizer->vocabulary();
  const auto text = [&](TokenId id) {
    return id == kNoToken ? std::string() : tokenizer->token_bytes(id, true);
  };
  try {
    return std::make_unique<ChatTemplate>(std::string(*source), text(vocabulary.bos_token),
                                          text(vocabulary.eos_token));
  } catch (const TemplateError& error) {
    file.fail("chat template, line " + std::to_string(error.line()) + ": " + error.what());
  }
}

std::vector<TokenId> find_end_tokens(const GgufFile& file, const Tokenizer* tokenizer,
                                     std::int32_t vocab_size) {
  std::vector<TokenId> ids;
  const auto add = [&](TokenId id) {
    if (std::find(ids.begin(), ids.end(), id) == ids.end()) ids.push_back(id);
  };
  for (const char* key : {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                          "tokenizer.ggml.eom_token_id"}) {
    const auto id = file.integer(key);
    if (!id) continue;
    if (*id < 0 || *id >= vocab_size) {
      file.fail("metadata '" + std::string(key) + "' is " + std::to_string(*id) +
                ", the vocabulary has " + std::to_string(vocab_size) + " tokens");
    }
    add(static_cast<TokenId>(*id));
  }
  if (tokenizer == nullptr) return ids;
  const std::vector<TokenKind>& kinds = tokenizer->vocabulary().kinds;
  for (const std::string_view piece : kEndPieces) {
    const TokenId id = tokenizer->find(piece);
    if (id != kNoToken && static_cast<std::size_t>(id) < kinds.size() &&
        kinds[static_cast<std::size_t>(id)] == TokenKind::kControl) {
      add(id);
    }
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

struct Model::Impl {
  explicit Impl(const std::string& path) : file(path) {}

  GgufFile file;
  ModelConfig config;
  std::unique_ptr<Tokenizer> tokenizer;
  std::unique_ptr<ChatTemplate> chat_template;
  std::vector<TokenId> eos_token_ids;
  GenerationDefaults generation_defaults;
  std::string fingerprint;
};

Model::Model() = default;
Model::~Model() = default;

std::shared_ptr<const Model> Model::open(const std::string& path) {
  std::shared_ptr<Model> model(new Model());
  model->impl_ = std::make_unique<Impl>(path);
  Impl& impl = *model->impl_;
  impl.config = read_model_config(impl.file);
  check_weights(impl.file, impl.config);
  impl.tokenizer = make_tokenizer(impl.file);
  impl.chat_template = make_chat_template(impl.file, impl.tokenizer.get());
  impl.eos_token_ids = find_end_tokens(impl.file, impl.tokenizer.get(), impl.config.vocab_size);
  impl.generation_defaults = read_generation_defaults(impl.file);
  // The file holds all of them: weights, tokenizer, template and generation settings.
  impl.fingerprint = hex(impl.file.content_hash());
  return model;
}

const std::string& Model::path() const { return impl_->file.path(); }
const ModelConfig& Model::config() const { return impl_->config; }
const GgufFile& Model::file() const { return impl_->file; }
const Tokenizer* Model::tokenizer() const { return impl_->tokenizer.get(); }
const ChatTemplate* Model::chat_template() const { return impl_->chat_template.get(); }
const std::vector<TokenId>& Model::eos_token_ids() const { return impl_->eos_token_ids; }
const GenerationDefaults& Model::generation_defaults() const { return impl_->generation_defaults; }
const std::string& Model::fingerprint() const { return impl_->fingerprint; }

}  // namespace batchmill
