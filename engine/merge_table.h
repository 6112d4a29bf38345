// Which neighbouring tokens a BPE joins, and in which order. Owned by a Bpe or SentencePiece;
// filled at construction, then immutable; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/types.h"
#include "engine/vocabulary.h"
#include "engine/vocabulary_index.h"

namespace batchmill {

class MergeTable {
 public:
  struct Merge {
    std::uint32_t rank = 0;  // lower joins first
    TokenId joined = kNoToken;
  };

  // As `vocabulary.merge_order` says. Joins that text must not make (VocabularyIndex::is_text) are
  // left out. Throws std::runtime_error naming the merge or score that is broken.
  MergeTable(const Vocabulary& vocabulary, const VocabularyIndex& index);

  // Null if they do not join.
  const Merge* find(TokenId left, TokenId right) const {
    const std::uint64_t pair = pair_of(left, right);
    std::size_t slot = slot_of(pair);
    while (slots_[slot].pair != pair) {
      if (slots_[slot].pair == kNoPair) return nullptr;
      slot = (slot + 1) & (slots_.size() - 1);
    }
    return slots_[slot].merge.joined == kNoToken ? nullptr : &slots_[slot].merge;
  }

  // Calls f(joined) for every join, in no order.
  template <class F>
  void for_each_joined(const F& f) const {
    for (const Slot& slot : slots_) {
      if (slot.pair != kNoPair && slot.merge.joined != kNoToken) f(slot.merge.joined);
    }
  }

 private:
  static constexpr std::uint64_t kNoPair = ~std::uint64_t{0};
  static constexpr std::uint64_t kHashFactor = 0x9E3779B97F4A7C15u;

  struct Slot {
    std::uint64_t pair = kNoPair;  // left id, right id
    Merge merge;
  };

  // One way to split an entry into two.
  struct Split {
    TokenId left;
    TokenId right;
    TokenId joined;
  };

  static std::uint64_t pair_of(TokenId left, TokenId right) {
    return std::uint64_t{static_cast<std::uint32_t>(left)} << 32 |
           static_cast<std::uint32_t>(right);
  }
  std::size_t slot_of(std::uint64_t pair) const { return pair * kHashFactor >> shift_; }

  void reserve(std::size_t num_merges);
  // The merge that is there already, else null.
  const Merge* insert(TokenId left, TokenId right, Merge merge);
  void read_listed(const Vocabulary& vocabulary, const VocabularyIndex& index);
  void rank_splits(const Vocabulary& vocabulary, const VocabularyIndex& index);

  std::vector<Slot> slots_;  // a power of two, at most half full; linear probing
  std::uint32_t shift_ = 0;
};

}  // namespace batchmill
