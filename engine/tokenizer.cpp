#include "engine/tokenizer.h"

#include <stdexcept>
#include <utility>

#include "engine/bpe_tokenizer.h"
#include "engine/sentencepiece_tokenizer.h"
#include "engine/unicode.h"
#include "engine/vocabulary_index.h"
#include "engine/wordpiece_tokenizer.h"

namespace batchmill {

std::unique_ptr<Tokenizer> Tokenizer::create(Vocabulary vocabulary) {
  const std::string& model = vocabulary.model;
  if (model == "gpt2") return std::make_unique<BpeTokenizer>(std::move(vocabulary));
  if (model == "llama") return std::make_unique<SentencePieceTokenizer>(std::move(vocabulary));
  if (model == "bert") return std::make_unique<WordPieceTokenizer>(std::move(vocabulary));
  std::string kind;
  if (model == "t5") kind = " (Unigram)";
  throw std::runtime_error("tokenizer: model " + quoted(model) + kind +
                           " is not supported (known: gpt2, llama, bert)");
}

std::string Tokenizer::token_bytes(TokenId id, bool with_special) const {
  std::string bytes;
  append_bytes(id, with_special, /*starts_text=*/false, &bytes);
  return bytes;
}

std::string Tokenizer::decode(std::span<const TokenId> ids, bool with_special) const {
  std::string bytes;
  bool starts_text = true;
  for (const TokenId id : ids) {
    if (append_bytes(id, with_special, starts_text, &bytes)) starts_text = false;
  }
  if (valid_utf8_prefix(bytes) == bytes.size()) return bytes;
  return replace_invalid_utf8(bytes);
}

}  // namespace batchmill
