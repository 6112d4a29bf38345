#include "engine/gguf_vocabulary.h"

#include <limits>
#include <string>

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
  if (const auto kinds = file.integers("tokenizer.ggml.token_type")) {
    vocabulary.kinds.reserve(kinds->size());
    for (const std::int64_t kind : *kinds) {
      if (kind < 0 || kind > std::numeric_limits<std::uint8_t>::max()) {
        file.fail("tokenizer.ggml.token_type: entry " + std::to_string(vocabulary.kinds.size()) +
                  " is " + std::to_string(kind));
      }
      vocabulary.kinds.push_back(static_cast<TokenKind>(kind));
    }
  }
  if (const auto merges = file.strings("tokenizer.ggml.merges")) {
    vocabulary.merges.assign(merges->begin(), merges->end());
  }
  vocabulary.bos_token = read_token_id(file, "tokenizer.ggml.bos_token_id");
  vocabulary.eos_token = read_token_id(file, "tokenizer.ggml.eos_token_id");
  vocabulary.unknown_token = read_token_id(file, "tokenizer.ggml.unknown_token_id");
  vocabulary.padding_token = read_token_id(file, "tokenizer.ggml.padding_token_id");
  vocabulary.add_bos = file.boolean("tokenizer.ggml.add_bos_token").value_or(false);
  vocabulary.add_eos = file.boolean("tokenizer.ggml.add_eos_token").value_or(false);
  return vocabulary;
}

}  // namespace batchmill
