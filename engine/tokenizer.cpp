#include "engine/tokenizer.h"

#include <stdexcept>
#include <utility>

#include "engine/bpe_tokenizer.h"
#include "engine/unicode.h"
#include "engine/vocabulary_index.h"

namespace batchmill {

std::unique_ptr<Tokenizer> Tokenizer::create(Vocabulary vocabulary) {
  const std::string& model = vocabulary.model;
  if (model == "gpt2") return std::make_unique<BpeTokenizer>(std::move(vocabulary));
  std::string kind;
  if (model == "llama") kind = " (SentencePiece)";
  if (model == "bert") kind = " (WordPiece)";
  throw std::runtime_error("tokenizer: model " + quoted(model) + kind +
                           " is not supported (known: gpt2)");
}

std::string Tokenizer::decode(std::span<const TokenId> ids, bool with_special) const {
  std::string bytes;
  for (const TokenId id : ids) bytes += token_bytes(id, with_special);
  return replace_invalid_utf8(bytes);
}

}  // namespace batchmill
