// The tokenizer of model "gpt2": a pre-tokenizer, then byte-level BPE. Made by Tokenizer::create;
// immutable, any thread.
#pragma once

#include "engine/bpe.h"
#include "engine/pretokenizer.h"
#include "engine/vocabulary_tokenizer.h"

namespace batchmill {

class BpeTokenizer : public VocabularyTokenizer {
 public:
  // Throws std::runtime_error as Tokenizer::create does.
  explicit BpeTokenizer(Vocabulary vocabulary);

 protected:
  void encode_stretch(std::string_view stretch, bool begins_text, Scratch* scratch,
                      std::vector<TokenId>* ids) const override;
  void append_spelling(std::string_view spelling, TokenKind kind, bool starts_text,
                       std::string* bytes) const override;

 private:
  const PreTokenizer* pre_tokenizer_;
  bool normalizes_;  // to Unicode's form C
  Bpe bpe_;
};

}  // namespace batchmill
