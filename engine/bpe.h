// Byte-level BPE: turns one piece of text into token ids by joining neighbours, best merge first,
// then leftmost. Owned by a Tokenizer; immutable, any thread.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "engine/piece_table.h"
#include "engine/tokenizer.h"
#include "engine/vocabulary_index.h"

namespace batchmill {

class Bpe {
 public:
  // Working memory of one thread, reused from piece to piece.
  struct Scratch {
    // One symbol of a long piece, in a doubly linked list.
    struct Symbol {
      TokenId id;
      std::uint32_t previous;
      std::uint32_t next;
    };
    std::vector<TokenId> ids;
    std::vector<Symbol> symbols;
    // Neighbours that may be joined: the merge's rank, then the left symbol's index. One whose
    // symbols have changed since is recognised by its rank.
    std::vector<std::uint64_t> heap;
  };

  // `whole_pieces_first`: a piece that is an entry is that token without merging. Neither argument
  // is kept. Throws std::runtime_error naming the merge that is broken.
  Bpe(const Vocabulary& vocabulary, const VocabularyIndex& index, bool whole_pieces_first);

  // Appends the ids of `piece`. Bytes that the vocabulary has no token for are left out before
  // merging. Never gives a control token. O(n log n).
  void encode(std::string_view piece, Scratch* scratch, std::vector<TokenId>* ids) const;

 private:
  struct Merge {
    std::uint64_t pair = kNoPair;  // left id, right id
    std::uint32_t rank = 0;
    TokenId joined = kNoToken;
  };
  static constexpr std::uint64_t kNoPair = ~std::uint64_t{0};
  static std::uint64_t pair_of(TokenId left, TokenId right) {
    return std::uint64_t{static_cast<std::uint32_t>(left)} << 32 |
           static_cast<std::uint32_t>(right);
  }

  void read_bytes(const VocabularyIndex& index);
  void read_merges(const Vocabulary& vocabulary, const VocabularyIndex& index);
  void read_pieces(const VocabularyIndex& index, bool whole_pieces_first);
  std::size_t slot_of(std::uint64_t pair) const { return pair * kHashFactor >> shift_; }
  const Merge* find_merge(TokenId left, TokenId right) const;  // null if they do not join
  // Each leaves the encoding in scratch->ids; the latter two start from the bytes' tokens there.
  void merge(std::string_view piece, Scratch* scratch) const;
  void merge_short(std::vector<TokenId>* ids) const;
  void merge_long(Scratch* scratch) const;
  // Appends the pair that starts at symbol `left` to the heap's array; false if it does not join.
  bool add_candidate(std::uint32_t left, Scratch* scratch) const;

  static constexpr std::uint64_t kHashFactor = 0x9E3779B97F4A7C15u;

  std::array<TokenId, 256> byte_tokens_;
  std::vector<Merge> merges_;  // hash table: a power of two, at most half full; linear probing
  std::uint32_t shift_ = 0;
  PieceTable pieces_;  // pieces whose whole encoding is one token
};

}  // namespace batchmill
