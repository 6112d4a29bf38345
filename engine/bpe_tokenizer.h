// The tokenizer of GGUF's model "gpt2": special tokens, then a pre-tokenizer, then byte-level BPE.
// Made by Tokenizer::create; immutable, any thread.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/bpe.h"
#include "engine/pretokenizer.h"
#include "engine/special_tokens.h"
#include "engine/tokenizer.h"
#include "engine/vocabulary_index.h"

namespace batchmill {

class BpeTokenizer : public Tokenizer {
 public:
  // Throws std::runtime_error as Tokenizer::create does.
  explicit BpeTokenizer(Vocabulary vocabulary);

  std::int32_t vocab_size() const override { return index_.size(); }
  const Vocabulary& vocabulary() const override { return vocabulary_; }
  std::vector<TokenId> encode(std::string_view text, bool parse_special) const override;
  std::vector<TokenId> encode(const MarkedText& text) const override;
  std::string token_bytes(TokenId id, bool with_special) const override;
  std::string_view piece(TokenId id) const override;
  TokenId find(std::string_view piece) const override { return index_.find(piece); }

 private:
  // `text` is valid UTF-8.
  std::vector<TokenId> encode_valid(std::string_view text, const SpecialTokens& special,
                                    std::span<const ByteSpan> marked) const;

  Vocabulary vocabulary_;
  VocabularyIndex index_;
  const PreTokenizer* pre_tokenizer_;
  Bpe bpe_;
  SpecialTokens always_special_;  // user-defined
  SpecialTokens special_if_parsed_;  // user-defined, control and unknown
};

}  // namespace batchmill
