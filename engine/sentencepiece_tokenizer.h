// The tokenizer of model "llama": SentencePiece's BPE over whole stretches of text, spaces written
// as "▁". Made by Tokenizer::create; immutable, any thread.
#pragma once

#include "engine/sentencepiece.h"
#include "engine/vocabulary_tokenizer.h"

namespace batchmill {

class SentencePieceTokenizer : public VocabularyTokenizer {
 public:
  // Throws std::runtime_error as Tokenizer::create does.
  explicit SentencePieceTokenizer(Vocabulary vocabulary);

 protected:
  void encode_stretch(std::string_view stretch, bool begins_text, Scratch* scratch,
                      std::vector<TokenId>* ids) const override;
  void append_spelling(std::string_view spelling, TokenKind kind, bool starts_text,
                       std::string* bytes) const override;

 private:
  bool needs_prefix(std::string_view stretch, bool begins_text) const;

  SentencePiece pieces_;
};

}  // namespace batchmill
