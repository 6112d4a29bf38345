// Byte-level BPE: turns one piece of text into token ids. Owned by a Tokenizer; immutable, any
// thread.
#pragma once

#include <array>
#include <string_view>
#include <vector>

#include "engine/merge_symbols.h"
#include "engine/merge_table.h"
#include "engine/piece_table.h"
#include "engine/vocabulary_index.h"

namespace batchmill {

class Bpe {
 public:
  // `whole_pieces_first`: a piece that is an entry is that token without merging. Neither argument
  // is kept. Throws std::runtime_error naming the merge that is broken.
  Bpe(const Vocabulary& vocabulary, const VocabularyIndex& index, bool whole_pieces_first);

  // Appends the ids of `piece`. Bytes that the vocabulary has no token for are left out before
  // merging. Never gives a control token. O(n log n).
  void encode(std::string_view piece, MergeScratch* scratch, std::vector<TokenId>* ids) const;

 private:
  void read_bytes(const VocabularyIndex& index);
  void read_pieces(const VocabularyIndex& index, bool whole_pieces_first);
  void merge(std::string_view piece, MergeScratch* scratch) const;  // into scratch->ids

  std::array<TokenId, 256> byte_tokens_;
  MergeTable merges_;
  PieceTable pieces_;  // pieces whose whole encoding is one token
};

}  // namespace batchmill
