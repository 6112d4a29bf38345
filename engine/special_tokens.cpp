#include "engine/special_tokens.h"

#include <algorithm>

namespace batchmill {

SpecialTokens::SpecialTokens() : nodes_(1) {}

void SpecialTokens::add(std::string_view text, TokenId id, Traits traits) {
  std::uint32_t node = 0;
  for (const char byte : text) {
    std::uint32_t next = child(node, byte);
    if (next == 0) {
      next = static_cast<std::uint32_t>(nodes_.size());
      const auto value = static_cast<unsigned char>(byte);
      std::uint32_t& head = node == 0 ? roots_[value] : nodes_[node].first_child;
      const Node added{value, 0, head, kNoToken, {}};
      head = next;
      nodes_.push_back(added);
    }
    node = next;
  }
  nodes_[node].id = id;
  nodes_[node].traits = traits;
}

std::uint32_t SpecialTokens::child(std::uint32_t node, char byte) const {
  const auto value = static_cast<unsigned char>(byte);
  if (node == 0) return roots_[value];
  std::uint32_t next = nodes_[node].first_child;
  while (next != 0 && nodes_[next].byte != value) next = nodes_[next].next_sibling;
  return next;
}

std::optional<SpecialTokens::Match> SpecialTokens::match_at(std::string_view text,
                                                            std::size_t begin,
                                                            std::size_t unmarked_end) const {
  std::optional<Match> longest;
  std::uint32_t node = 0;
  for (std::size_t i = begin; i < text.size(); ++i) {
    node = child(node, text[i]);
    if (node == 0) break;
    const Node& found = nodes_[node];
    if (found.id != kNoToken && (found.traits.is_text || i < unmarked_end)) {
      longest = Match{begin, i + 1, found.id, found.traits};
    }
  }
  return longest;
}

std::optional<SpecialTokens::Match> SpecialTokens::find(std::string_view text, std::size_t position,
                                                        std::span<const ByteSpan> marked) const {
  if (nodes_.size() == 1) return std::nullopt;
  while (position < text.size()) {
    // The stretch that begins here and is wholly marked or unmarked; empty spans mark nothing.
    while (!marked.empty() &&
           (marked.front().end <= position || marked.front().begin >= marked.front().end)) {
      marked = marked.subspan(1);
    }
    std::size_t end = text.size();
    bool is_marked = false;
    if (!marked.empty()) {
      is_marked = marked.front().begin <= position;
      end = std::min(end, is_marked ? marked.front().end : marked.front().begin);
    }
    for (; position < end; ++position) {
      if (roots_[static_cast<unsigned char>(text[position])] == 0) continue;
      if (const auto match = match_at(text, position, is_marked ? position : end)) return match;
    }
  }
  return std::nullopt;
}

}  // namespace batchmill
