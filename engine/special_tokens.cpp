#include "engine/special_tokens.h"

#include <algorithm>

namespace batchmill {

SpecialTokens::SpecialTokens() : nodes_(1) {}

void SpecialTokens::add(std::string_view text, TokenId id) {
  std::uint32_t node = 0;
  for (const char byte : text) {
    std::uint32_t next = child(node, byte);
    if (next == 0) {
      next = static_cast<std::uint32_t>(nodes_.size());
      const auto value = static_cast<unsigned char>(byte);
      std::uint32_t& head = node == 0 ? roots_[value] : nodes_[node].first_child;
      const Node added{value, 0, head, kNoToken};
      head = next;
      nodes_.push_back(added);
    }
    node = next;
  }
  nodes_[node].id = id;
}

std::uint32_t SpecialTokens::child(std::uint32_t node, char byte) const {
  const auto value = static_cast<unsigned char>(byte);
  if (node == 0) return roots_[value];
  std::uint32_t next = nodes_[node].first_child;
  while (next != 0 && nodes_[next].byte != value) next = nodes_[next].next_sibling;
  return next;
}

std::optional<SpecialTokens::Match> SpecialTokens::match_at(std::string_view text,
                                                            std::size_t begin) const {
  std::optional<Match> longest;
  std::uint32_t node = 0;
  for (std::size_t i = begin; i < text.size(); ++i) {
    node = child(node, text[i]);
    if (node == 0) break;
    if (nodes_[node].id != kNoToken) longest = Match{begin, i + 1, nodes_[node].id};
  }
  return longest;
}

std::optional<SpecialTokens::Match> SpecialTokens::find(std::string_view text, std::size_t position,
                                                        std::span<const ByteSpan> marked) const {
  if (nodes_.size() == 1) return std::nullopt;
  std::size_t next_mark = 0;
  while (position < text.size()) {
    // The unmarked stretch that holds or follows `position`; empty spans mark nothing.
    while (next_mark < marked.size() && (marked[next_mark].begin <= position ||
                                         marked[next_mark].begin >= marked[next_mark].end)) {
      if (marked[next_mark].begin <= position) {
        position = std::max(position, marked[next_mark].end);
      }
      ++next_mark;
    }
    const std::size_t end =
        next_mark < marked.size() ? std::min(marked[next_mark].begin, text.size()) : text.size();
    for (; position < end; ++position) {
      if (roots_[static_cast<unsigned char>(text[position])] == 0) continue;
      if (const auto match = match_at(text.substr(0, end), position)) return match;
    }
  }
  return std::nullopt;
}

}  // namespace batchmill
