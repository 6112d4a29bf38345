#include "engine/model.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <stdexcept>
#include <string_view>
#include <system_error>

#include "engine/model_files.h"
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

// What Tokenizer::create says, with the model's path in front.
std::unique_ptr<Tokenizer> make_tokenizer(ModelFiles* files) {
  if (!files->vocabulary) return nullptr;
  try {
    return Tokenizer::create(std::move(*files->vocabulary));
  } catch (const std::runtime_error& error) {
    files->tensors->fail(std::string("tokenizer: ") + error.what());
  }
}

std::unique_ptr<ChatTemplate> make_chat_template(const ModelFiles& files,
                                                 const Tokenizer* tokenizer) {
  if (!files.chat_template || tokenizer == nullptr) return nullptr;
  const Vocabulary& vocabulary = tokenizer->vocabulary();
  const auto text = [&](TokenId id) {
    return id == kNoToken ? std::string() : tokenizer->token_bytes(id, true);
  };
  try {
    return std::make_unique<ChatTemplate>(*files.chat_template, text(vocabulary.bos_token),
                                          text(vocabulary.eos_token));
  } catch (const TemplateError& error) {
    files.tensors->fail("chat template, line " + std::to_string(error.line()) + ": " +
                        error.what());
  }
}

// The tokens that the files name, and those that families are known to end a turn with.
std::vector<TokenId> find_end_tokens(const ModelFiles& files, const Tokenizer* tokenizer) {
  std::vector<TokenId> ids;
  const auto add = [&](TokenId id) {
    if (std::find(ids.begin(), ids.end(), id) == ids.end()) ids.push_back(id);
  };
  for (const TokenId id : files.eos_token_ids) add(id);
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

ModelFiles read_files(const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) return read_model_folder(path);
  for (const char* ending : {".safetensors", ".json"}) {
    if (path.ends_with(ending) && std::filesystem::exists(path, ignored)) {
      throw std::runtime_error(path + ": is a part of a model; give the folder it is in");
    }
  }
  return read_gguf_model(path);
}

}  // namespace

struct Model::Impl {
  std::string path;
  ModelFiles files;
  std::unique_ptr<Tokenizer> tokenizer;
  std::unique_ptr<ChatTemplate> chat_template;
  std::vector<TokenId> eos_token_ids;
  std::string fingerprint;
};

Model::Model() = default;
Model::~Model() = default;

std::shared_ptr<const Model> Model::open(const std::string& path) {
  std::shared_ptr<Model> model(new Model());
  model->impl_ = std::make_unique<Impl>();
  Impl& impl = *model->impl_;
  impl.path = path;
  impl.files = read_files(path);
  check_weights(*impl.files.tensors, impl.files.config);
  impl.tokenizer = make_tokenizer(&impl.files);
  impl.chat_template = make_chat_template(impl.files, impl.tokenizer.get());
  impl.eos_token_ids = find_end_tokens(impl.files, impl.tokenizer.get());
  impl.fingerprint = hex(impl.files.content_hash);
  return model;
}

const std::string& Model::path() const { return impl_->path; }
const ModelConfig& Model::config() const { return impl_->files.config; }
const TensorSource& Model::tensors() const { return *impl_->files.tensors; }
const Tokenizer* Model::tokenizer() const { return impl_->tokenizer.get(); }
const ChatTemplate* Model::chat_template() const { return impl_->chat_template.get(); }
const std::vector<TokenId>& Model::eos_token_ids() const { return impl_->eos_token_ids; }
const GenerationDefaults& Model::generation_defaults() const {
  return impl_->files.generation_defaults;
}
const std::string& Model::fingerprint() const { return impl_->fingerprint; }

}  // namespace batchmill
