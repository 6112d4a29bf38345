#include "engine/bpe_tokenizer.h"

#include <stdexcept>
#include <utility>

#include "engine/byte_alphabet.h"
#include "engine/normalization.h"

namespace batchmill {
namespace {

const PreTokenizer* require_pre_tokenizer(const std::string& name) {
  const PreTokenizer* found = find_pre_tokenizer(name);
  if (found == nullptr) {
    throw std::runtime_error("tokenizer: pre-tokenizer " + quoted(name) +
                             " is not supported (known: " + known_pre_tokenizers() + ")");
  }
  return found;
}

}  // namespace

BpeTokenizer::BpeTokenizer(Vocabulary given)
    : VocabularyTokenizer(std::move(given)),
      pre_tokenizer_(require_pre_tokenizer(vocabulary().pre_tokenizer)),
      normalizes_(vocabulary().normalizes.value_or(pre_tokenizer_->habits.normalizes)),
      bpe_(vocabulary(), index(),
           vocabulary().whole_pieces_first.value_or(pre_tokenizer_->habits.whole_pieces_first)) {}

void BpeTokenizer::encode_stretch(std::string_view stretch, bool /*begins_text*/, Scratch* scratch,
                                  std::vector<TokenId>* ids) const {
  if (normalizes_ && !is_surely_nfc(stretch)) {
    scratch->text = to_nfc(stretch);
    stretch = scratch->text;
  }
  scratch->piece_ends.clear();
  pre_tokenizer_->split(stretch, &scratch->piece_ends);
  std::size_t begin = 0;
  for (const std::size_t end : scratch->piece_ends) {
    bpe_.encode(stretch.substr(begin, end - begin), &scratch->merge, ids);
    begin = end;
  }
}

void BpeTokenizer::append_spelling(std::string_view spelling, TokenKind kind, bool /*starts_text*/,
                                   std::string* bytes) const {
  const bool in_alphabet = kind == TokenKind::kNormal || kind == TokenKind::kByte;
  if (!in_alphabet || !append_bytes_of_spelling(spelling, bytes)) *bytes += spelling;
}

}  // namespace batchmill
