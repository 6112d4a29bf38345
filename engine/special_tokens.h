// Finds the vocabulary entries that are matched in the text as a whole, before pre-tokenization:
// leftmost first, then longest. Owned by a Tokenizer; immutable, any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "engine/tokenizer.h"

namespace batchmill {

class SpecialTokens {
 public:
  struct Traits {
    bool is_text = false;  // may touch marked bytes: it says nothing that text may not say
    bool strips_left = false;  // takes the white space before it along
    bool strips_right = false;
  };
  struct Match {
    std::size_t begin;  // without the white space it takes along
    std::size_t end;
    TokenId id;
    Traits traits;
  };

  SpecialTokens();

  // `text` must not be empty; one added before with the same text is replaced.
  void add(std::string_view text, TokenId id, Traits traits);
  void add(std::string_view text, TokenId id) { add(text, id, Traits()); }

  // The first match from `position` on that touches no marked byte, unless it is text. `marked` is
  // sorted and disjoint.
  std::optional<Match> find(std::string_view text, std::size_t position,
                            std::span<const ByteSpan> marked) const;

 private:
  // A trie: children are linked lists, except the root's. Index 0 (the root) means "none".
  struct Node {
    unsigned char byte = 0;
    std::uint32_t first_child = 0;
    std::uint32_t next_sibling = 0;
    TokenId id = kNoToken;
    Traits traits;
  };

  std::uint32_t child(std::uint32_t node, char byte) const;
  // The longest match at `begin` that ends by `unmarked_end` or is text.
  std::optional<Match> match_at(std::string_view text, std::size_t begin,
                                std::size_t unmarked_end) const;

  std::vector<Node> nodes_;
  std::array<std::uint32_t, 256> roots_{};  // by first byte
};

}  // namespace batchmill
