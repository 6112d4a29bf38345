// The merging of byte-pair encodings: joins neighbours, best merge first, then leftmost.
// Pure; any thread with a scratch of its own.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/merge_table.h"

namespace batchmill {

// Working memory of one thread, reused from piece to piece.
struct MergeScratch {
  // One symbol of a long piece, in a doubly linked list.
  struct Symbol {
    TokenId id;
    std::uint32_t previous;
    std::uint32_t next;
  };
  std::vector<TokenId> ids;  // in: the piece's smallest tokens; out: its encoding
  std::vector<Symbol> symbols;
  // Neighbours that may be joined: the merge's rank, then the left symbol's index. One whose
  // symbols have changed since is recognised by its rank.
  std::vector<std::uint64_t> heap;
};

// Joins scratch->ids. O(n log n).
void merge_symbols(const MergeTable& merges, MergeScratch* scratch);

}  // namespace batchmill
