// A vocabulary that a person can read: 64 tokens, of which 0…25 are the letters a…z. Immutable.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/tokenizer.h"

namespace batchmill::testing {

inline constexpr TokenId kSpaceToken = 26;
inline constexpr TokenId kFirstByteOfEAcute = 27;  // 0xC3 of "é"
inline constexpr TokenId kLastByteOfEAcute = 28;  // 0xA9
inline constexpr TokenId kStopWordToken = 29;  // "STOP"
inline constexpr TokenId kEndToken = 63;  // control, "<end>"

class LetterTokenizer : public Tokenizer {
 public:
  LetterTokenizer();

  std::int32_t vocab_size() const override { return 64; }
  const Vocabulary& vocabulary() const override { return vocabulary_; }
  // One token per letter or space; everything else is dropped.
  std::vector<TokenId> encode(std::string_view text, bool parse_special) const override;
  std::vector<TokenId> encode(const MarkedText& text) const override;
  bool append_bytes(TokenId id, bool with_special, bool starts_text,
                    std::string* bytes) const override;
  std::string_view piece(TokenId id) const override;
  TokenId find(std::string_view piece) const override;

 private:
  Vocabulary vocabulary_;
};

}  // namespace batchmill::testing
