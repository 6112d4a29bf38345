#include "engine/bpe_tokenizer.h"

#include <stdexcept>
#include <utility>

#include "engine/byte_alphabet.h"
#include "engine/unicode.h"
#include "engine/utf8_repair.h"

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

BpeTokenizer::BpeTokenizer(Vocabulary vocabulary)
    : vocabulary_(std::move(vocabulary)),
      index_(&vocabulary_),
      pre_tokenizer_(require_pre_tokenizer(vocabulary_.pre_tokenizer)),
      bpe_(vocabulary_, index_, pre_tokenizer_->whole_pieces_first) {
  for (TokenId id = 0; id < index_.size(); ++id) {
    const std::string_view text = index_.spelling(id);
    if (text.empty()) continue;
    const TokenKind kind = index_.kind(id);
    if (kind == TokenKind::kUserDefined) always_special_.add(text, id);
    if (kind == TokenKind::kUserDefined || kind == TokenKind::kControl ||
        kind == TokenKind::kUnknown) {
      special_if_parsed_.add(text, id);
    }
  }
}

std::vector<TokenId> BpeTokenizer::encode(std::string_view text, bool parse_special) const {
  const SpecialTokens& special = parse_special ? special_if_parsed_ : always_special_;
  if (valid_utf8_prefix(text) == text.size()) return encode_valid(text, special, {});
  return encode_valid(replace_invalid_utf8(text), special, {});
}

std::vector<TokenId> BpeTokenizer::encode(const MarkedText& text) const {
  if (valid_utf8_prefix(text.text) == text.text.size()) {
    return encode_valid(text.text, special_if_parsed_, text.marked);
  }
  const MarkedText repaired = replace_invalid_utf8(text);
  return encode_valid(repaired.text, special_if_parsed_, repaired.marked);
}

std::vector<TokenId> BpeTokenizer::encode_valid(std::string_view text, const SpecialTokens& special,
                                                std::span<const ByteSpan> marked) const {
  std::vector<TokenId> ids;
  ids.reserve(text.size() / 3);  // English prose has about 4.5 bytes a token
  std::vector<std::size_t> piece_ends;
  Bpe::Scratch scratch;
  std::size_t begin = 0;
  while (begin < text.size()) {
    while (!marked.empty() && marked.front().end <= begin) marked = marked.subspan(1);
    const auto match = special.find(text, begin, marked);
    const std::size_t end = match ? match->begin : text.size();
    const std::string_view stretch = text.substr(begin, end - begin);
    piece_ends.clear();
    pre_tokenizer_->split(stretch, &piece_ends);
    std::size_t piece_begin = 0;
    for (const std::size_t piece_end : piece_ends) {
      bpe_.encode(stretch.substr(piece_begin, piece_end - piece_begin), &scratch, &ids);
      piece_begin = piece_end;
    }
    if (!match) break;
    ids.push_back(match->id);
    begin = match->end;
  }
  return ids;
}

std::string BpeTokenizer::token_bytes(TokenId id, bool with_special) const {
  if (!index_.contains(id)) return "";
  const std::string_view spelling = index_.spelling(id);
  switch (index_.kind(id)) {
    case TokenKind::kNormal:
    case TokenKind::kByte:
      return bytes_of_spelling(spelling).value_or(std::string(spelling));
    case TokenKind::kUserDefined:
      return std::string(spelling);
    case TokenKind::kControl:
    case TokenKind::kUnknown:
      return with_special ? std::string(spelling) : "";
    case TokenKind::kUnused:
      return "";
  }
  return "";
}

std::string_view BpeTokenizer::piece(TokenId id) const {
  return index_.contains(id) ? index_.spelling(id) : std::string_view();
}

}  // namespace batchmill
