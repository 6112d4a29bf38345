// The tokenizer of model "bert": words by BERT's rules, each cut into its longest known parts. Made
// by Tokenizer::create; immutable, any thread.
#pragma once

#include "engine/piece_table.h"
#include "engine/vocabulary_tokenizer.h"
#include "engine/word_trie.h"

namespace batchmill {

class WordPieceTokenizer : public VocabularyTokenizer {
 public:
  // Throws std::runtime_error as Tokenizer::create does.
  explicit WordPieceTokenizer(Vocabulary vocabulary);

 protected:
  void encode_stretch(std::string_view stretch, bool begins_text, Scratch* scratch,
                      std::vector<TokenId>* ids) const override;
  void append_spelling(std::string_view spelling, TokenKind kind, bool starts_text,
                       std::string* bytes) const override;

 private:
  void encode_word(std::string_view word, std::vector<TokenId>* ids) const;

  PieceTable words_;  // entries that may be a whole word
  WordTrie starts_;  // the same
  WordTrie rests_;  // entries inside words, without "##"
};

}  // namespace batchmill
