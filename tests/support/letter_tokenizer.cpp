#include "tests/support/letter_tokenizer.h"

#include <algorithm>

namespace batchmill::testing {
namespace {

std::string letter_piece(TokenId id) {
  switch (id) {
    case kSpaceToken:
      return " ";
    case kFirstByteOfEAcute:
      return "\xC3";
    case kLastByteOfEAcute:
      return "\xA9";
    case kStopWordToken:
      return "STOP";
    case kEndToken:
      return "<end>";
    default:
      if (id < 26) return std::string(1, static_cast<char>('a' + id));
      return std::string(1, '<').append(std::to_string(id)).append(1, '>');
  }
}

}  // namespace

LetterTokenizer::LetterTokenizer() {
  for (int id = 0; id < 64; ++id) vocabulary_.tokens.push_back(letter_piece(id));
  vocabulary_.kinds.assign(64, TokenKind::kNormal);
  vocabulary_.kinds[kEndToken] = TokenKind::kControl;
  vocabulary_.eos_token = kEndToken;
}

std::vector<TokenId> LetterTokenizer::encode(std::string_view text, bool) const {
  std::vector<TokenId> ids;
  for (const char c : text) {
    if (c == ' ') ids.push_back(kSpaceToken);
    if (c >= 'a' && c <= 'z') ids.push_back(c - 'a');
  }
  return ids;
}

std::vector<TokenId> LetterTokenizer::encode(const MarkedText& text) const {
  return encode(text.text, false);
}

bool LetterTokenizer::append_bytes(TokenId id, bool with_special, bool /*starts_text*/,
                                   std::string* bytes) const {
  if (id == kEndToken && !with_special) return false;
  *bytes += vocabulary_.tokens[static_cast<std::size_t>(id)];
  return true;
}

std::string_view LetterTokenizer::piece(TokenId id) const {
  return vocabulary_.tokens[static_cast<std::size_t>(id)];
}

TokenId LetterTokenizer::find(std::string_view piece) const {
  const auto it = std::ranges::find(vocabulary_.tokens, piece);
  return it == vocabulary_.tokens.end() ? kNoToken
                                        : static_cast<TokenId>(it - vocabulary_.tokens.begin());
}

}  // namespace batchmill::testing
