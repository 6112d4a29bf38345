#include "engine/gguf_vocabulary.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <string>

#include "engine/sentencepiece.h"

namespace batchmill {
namespace {

TokenId read_token_id(const GgufFile& file, const std::string& key) {
  const std::optional<std::int64_t> id = file.integer(key);
  if (!id) return kNoToken;
  if (*id < 0 || *id > std::numeric_limits<TokenId>::max()) {
    file.fail(key + " is " + std::to_string(*id) + ", which is no token id");
  }
  return static_cast<TokenId>(*id);
}

std::vector<TokenKind> read_kinds(const GgufFile& file) {
  std::vector<TokenKind> kinds;
  const auto values = file.integers("tokenizer.ggml.token_type");
  if (!values) return kinds;
  kinds.reserve(values->size());
  for (const std::int64_t kind : *values) {
    if (kind < 0 || kind > std::numeric_limits<std::uint8_t>::max()) {
      file.fail("tokenizer.ggml.token_type: entry " + std::to_string(kinds.size()) + " is " +
                std::to_string(kind));
    }
    kinds.push_back(static_cast<TokenKind>(kind));
  }
  return kinds;
}

std::vector<float> read_scores(const GgufFile& file) {
  const std::string key = "tokenizer.ggml.scores";
  const GgufValue* value = file.find(key);
  if (value == nullptr) file.fail(key + " is missing");
  const auto* array = std::get_if<GgufArray>(&value->value);
  if (array == nullptr || array->element_type != GgufType::kFloat32) {
    file.fail(key + " is no array of float32");
  }
  std::vector<float> scores(array->size);
  if (!scores.empty()) std::memcpy(scores.data(), array->bytes.data(), array->bytes.size());
  return scores;
}

// The converter writes user-defined entries with spaces; SentencePiece's own files have "▁".
void restore_space_marks(Vocabulary* vocabulary) {
  const std::size_t size = std::min(vocabulary->kinds.size(), vocabulary->tokens.size());
  for (std::size_t id = 0; id < size; ++id) {
    if (vocabulary->kinds[id] != TokenKind::kUserDefined) continue;
    std::string& token = vocabulary->tokens[id];
    for (std::size_t at = token.find(' '); at != std::string::npos; at = token.find(' ', at)) {
      token.replace(at, 1, kSpaceMark);
    }
  }
}

// Phi-3's tokenizer lets most special tokens take the white space after them along. No key says so.
void read_phi3_stripping(const GgufFile& file, Vocabulary* vocabulary) {
  std::string name(file.string("general.name").value_or(""));
  for (char& c : name) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  const bool is_phi3 = file.string("general.architecture").value_or("") == "phi3" ||
                       name.find("phi-3") != std::string::npos ||
                       name.find("phi3") != std::string::npos;
  if (!is_phi3) return;
  const std::size_t size = std::min(vocabulary->kinds.size(), vocabulary->tokens.size());
  for (std::size_t id = 0; id < size; ++id) {
    const TokenKind kind = vocabulary->kinds[id];
    const std::string& token = vocabulary->tokens[id];
    if (kind != TokenKind::kControl && kind != TokenKind::kUserDefined) continue;
    if (token == "<unk>" || token == "<s>" || token == "<|endoftext|>") continue;
    vocabulary->right_stripping.push_back(static_cast<TokenId>(id));
  }
}

void read_sentencepiece(const GgufFile& file, Vocabulary* vocabulary) {
  if (file.boolean("tokenizer.ggml.remove_extra_whitespaces").value_or(false)) {
    file.fail("tokenizer.ggml.remove_extra_whitespaces is not supported");
  }
  vocabulary->scores = read_scores(file);
  vocabulary->merge_order = MergeOrder::kScores;
  const bool prefix = file.boolean("tokenizer.ggml.add_space_prefix").value_or(true);
  vocabulary->space_prefix = prefix ? SpacePrefix::kAlways : SpacePrefix::kNone;
  restore_space_marks(vocabulary);
  read_phi3_stripping(file, vocabulary);
}

// The converter marks the starts of words by "▁"; BERT's own files mark the others by "##".
void read_wordpiece(const GgufFile& file, Vocabulary* vocabulary) {
  for (std::size_t id = 0; id < vocabulary->tokens.size(); ++id) {
    std::string& token = vocabulary->tokens[id];
    const bool is_normal =
        id >= vocabulary->kinds.size() || vocabulary->kinds[id] == TokenKind::kNormal;
    if (token.starts_with(kSpaceMark)) {
      token.erase(0, kSpaceMark.size());
    } else if (is_normal && !(token.starts_with('[') && token.ends_with(']'))) {
      token.insert(0, "##");
    }
  }
  const auto read_first = [&](TokenId* id, const char* key) {
    if (*id == kNoToken) *id = read_token_id(file, key);
  };
  read_first(&vocabulary->bos_token, "tokenizer.ggml.cls_token_id");
  read_first(&vocabulary->eos_token, "tokenizer.ggml.seperator_token_id");  // spelled so
  read_first(&vocabulary->unknown_token, "tokenizer.ggml.unknown_token_id");
  vocabulary->add_bos = file.boolean("tokenizer.ggml.add_bos_token").value_or(true);
  vocabulary->add_eos = file.boolean("tokenizer.ggml.add_eos_token").value_or(true);
}

}  // namespace

std::optional<Vocabulary> read_vocabulary(const GgufFile& file) {
  const auto model = file.string("tokenizer.ggml.model");
  if (!model) return std::nullopt;
  const auto tokens = file.strings("tokenizer.ggml.tokens");
  if (!tokens) file.fail("tokenizer.ggml.tokens is missing");
  Vocabulary vocabulary;
  vocabulary.model = *model;
  vocabulary.pre_tokenizer = file.string("tokenizer.ggml.pre").value_or("");
  vocabulary.tokens.assign(tokens->begin(), tokens->end());
  vocabulary.kinds = read_kinds(file);
  if (const auto merges = file.strings("tokenizer.ggml.merges")) {
    vocabulary.merges.assign(merges->begin(), merges->end());
  }
  vocabulary.bos_token = read_token_id(file, "tokenizer.ggml.bos_token_id");
  vocabulary.eos_token = read_token_id(file, "tokenizer.ggml.eos_token_id");
  vocabulary.unknown_token = read_token_id(file, "tokenizer.ggml.unknown_token_id");
  vocabulary.padding_token = read_token_id(file, "tokenizer.ggml.padding_token_id");
  vocabulary.add_bos = file.boolean("tokenizer.ggml.add_bos_token").value_or(false);
  vocabulary.add_eos = file.boolean("tokenizer.ggml.add_eos_token").value_or(false);
  if (vocabulary.model == "llama") read_sentencepiece(file, &vocabulary);
  if (vocabulary.model == "bert") read_wordpiece(file, &vocabulary);
  return vocabulary;
}

}  // namespace batchmill
