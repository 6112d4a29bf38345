// A hash table from short byte strings to token ids: the tokenizer's fast path, one lookup per
// piece of text. Filled once, then immutable; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "engine/types.h"

namespace batchmill {

class PieceTable {
 public:
  // Makes room for `num_pieces` insertions.
  explicit PieceTable(std::size_t num_pieces);

  // `piece` must not be empty nor inserted before.
  void insert(std::string_view piece, TokenId id);

  TokenId find(std::string_view piece) const;  // kNoToken if absent

 private:
  // Pieces of up to 15 bytes are held in the table: zero-padded bytes, the length in the last one.
  static constexpr std::size_t kMaxShortBytes = 15;
  struct Key {
    std::uint64_t low = 0;
    std::uint64_t high = 0;  // never 0 in use, as the length is not
    bool operator==(const Key&) const = default;
  };
  struct Slot {
    Key key;
    TokenId id = kNoToken;
  };

  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const {
      return std::hash<std::string_view>()(text);
    }
  };

  static Key key_of(std::string_view piece);
  std::size_t slot_of(const Key& key) const;

  std::vector<Slot> slots_;  // a power of two, at most half full; linear probing
  std::uint32_t shift_;
  std::unordered_map<std::string, TokenId, Hash, std::equal_to<>> long_pieces_;
};

}  // namespace batchmill
