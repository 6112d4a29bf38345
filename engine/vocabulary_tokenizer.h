// What all kinds of tokenizers share: the vocabulary, its special tokens, and cutting a text at
// them. Each kind encodes the stretches between. Immutable; any thread.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/merge_symbols.h"
#include "engine/special_tokens.h"
#include "engine/tokenizer.h"
#include "engine/vocabulary_index.h"

namespace batchmill {

class VocabularyTokenizer : public Tokenizer {
 public:
  std::int32_t vocab_size() const override { return index_.size(); }
  const Vocabulary& vocabulary() const override { return vocabulary_; }
  std::vector<TokenId> encode(std::string_view text, bool parse_special) const override;
  std::vector<TokenId> encode(const MarkedText& text) const override;
  bool append_bytes(TokenId id, bool with_special, bool starts_text,
                    std::string* bytes) const override;
  std::string_view piece(TokenId id) const override;
  TokenId find(std::string_view piece) const override { return index_.find(piece); }

 protected:
  // Working memory of one call, reused from stretch to stretch.
  struct Scratch {
    MergeScratch merge;
    std::vector<std::size_t> piece_ends;
    std::string text;
    std::u32string code_points;
  };

  // Throws std::runtime_error naming the entry that is broken.
  explicit VocabularyTokenizer(Vocabulary vocabulary);

  const VocabularyIndex& index() const { return index_; }

  // Appends the ids of a stretch without special tokens: valid UTF-8, not empty. `begins_text`: it
  // starts at the text's first byte.
  virtual void encode_stretch(std::string_view stretch, bool begins_text, Scratch* scratch,
                              std::vector<TokenId>* ids) const = 0;

  // Appends what an entry that shows adds to a text.
  virtual void append_spelling(std::string_view spelling, TokenKind kind, bool starts_text,
                               std::string* bytes) const = 0;

 private:
  // `text` is valid UTF-8.
  std::vector<TokenId> encode_valid(std::string_view text, const SpecialTokens& special,
                                    std::span<const ByteSpan> marked) const;

  Vocabulary vocabulary_;
  VocabularyIndex index_;
  SpecialTokens always_special_;  // user-defined
  SpecialTokens special_if_parsed_;  // user-defined, control and unknown
};

}  // namespace batchmill
