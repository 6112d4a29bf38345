// Finds the longest known start of a word. Filled at construction of its owner, then immutable; any
// thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "engine/types.h"

namespace batchmill {

class WordTrie {
 public:
  struct Match {
    std::size_t num_bytes = 0;  // 0: no entry starts the text
    TokenId id = kNoToken;
  };

  WordTrie();

  // `text` must not be empty; one added before with the same text is replaced.
  void add(std::string_view text, TokenId id);

  // The longest entry that `text` starts with.
  Match longest_start(std::string_view text) const;

 private:
  static constexpr std::uint64_t kHashFactor = 0x9E3779B97F4A7C15u;

  // An edge from a node by one byte. The key 0 means an empty slot: node 0 is unused, 1 the root.
  struct Slot {
    std::uint64_t key = 0;  // node << 8 | byte
    std::uint32_t child = 0;
  };

  static std::uint64_t key_of(std::uint32_t node, char byte) {
    return std::uint64_t{node} << 8 | static_cast<unsigned char>(byte);
  }
  std::size_t slot_of(std::uint64_t key) const { return key * kHashFactor >> shift_; }
  std::size_t find_slot(std::uint64_t key) const;  // where it is or would be
  void grow();

  std::vector<Slot> slots_;  // a power of two, at most half full; linear probing
  std::uint32_t shift_;
  std::vector<TokenId> ids_;  // [node]
};

}  // namespace batchmill
