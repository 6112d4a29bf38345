// SentencePiece's BPE with byte fallback: turns a text in which spaces are "▁" into token ids.
// Owned by a Tokenizer; immutable, any thread.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "engine/merge_symbols.h"
#include "engine/merge_table.h"
#include "engine/piece_table.h"
#include "engine/vocabulary_index.h"

namespace batchmill {

inline constexpr std::string_view kSpaceMark = "\xE2\x96\x81";  // "▁"

class SentencePiece {
 public:
  // Neither argument is kept. Throws std::runtime_error naming the score or merge that is broken.
  SentencePiece(const Vocabulary& vocabulary, const VocabularyIndex& index);

  // Appends the ids of `text` (valid UTF-8). A character without an entry becomes the tokens of its
  // bytes, or the unknown token if one of them is missing. Never gives a control token.
  void encode(std::string_view text, MergeScratch* scratch, std::vector<TokenId>* ids) const;

 private:
  // What a character is for `joins_`: ASCII itself, then these two.
  static constexpr std::size_t kSpaceClass = 128;
  static constexpr std::size_t kOtherClass = 129;
  static constexpr std::size_t kNumClasses = 130;

  struct ClassifiedChar {
    std::size_t char_class;
    std::size_t num_bytes;
  };
  static ClassifiedChar char_at(std::string_view text, std::size_t position);

  void read_entries(const VocabularyIndex& index);
  void read_joins(const VocabularyIndex& index);
  void read_words(const VocabularyIndex& index);
  std::size_t word_end(std::string_view text, std::size_t begin) const;
  void merge(std::string_view word, MergeScratch* scratch) const;  // into scratch->ids

  TokenId unknown_token_;
  std::array<TokenId, 256> byte_tokens_;
  PieceTable chars_;  // one character each
  PieceTable words_;  // whose whole encoding is one token
  MergeTable merges_;
  // Whether some join has a character of the first class just before one of the second. Where none
  // has, no merge crosses, so the text is cut there first: that makes most words one lookup.
  std::array<std::array<bool, kNumClasses>, kNumClasses> joins_{};
};

// The byte that an entry "<0xE4>" stands for, or -1.
int byte_of_spelling(std::string_view spelling);

}  // namespace batchmill
