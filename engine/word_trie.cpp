#include "engine/word_trie.h"

#include <bit>

namespace batchmill {

WordTrie::WordTrie() : slots_(1024), shift_(64 - 10), ids_(2, kNoToken) {}

std::size_t WordTrie::find_slot(std::uint64_t key) const {
  std::size_t slot = slot_of(key);
  while (slots_[slot].key != 0 && slots_[slot].key != key) slot = (slot + 1) & (slots_.size() - 1);
  return slot;
}

void WordTrie::grow() {
  std::vector<Slot> old(slots_.size() * 2);
  old.swap(slots_);
  --shift_;
  for (const Slot& slot : old) {
    if (slot.key != 0) slots_[find_slot(slot.key)] = slot;
  }
}

void WordTrie::add(std::string_view text, TokenId id) {
  std::uint32_t node = 1;
  for (const char byte : text) {
    const std::uint64_t key = key_of(node, byte);
    std::size_t slot = find_slot(key);
    if (slots_[slot].key == 0) {
      if (ids_.size() * 2 > slots_.size()) {
        grow();
        slot = find_slot(key);
      }
      slots_[slot] = {key, static_cast<std::uint32_t>(ids_.size())};
      ids_.push_back(kNoToken);
    }
    node = slots_[slot].child;
  }
  ids_[node] = id;
}

WordTrie::Match WordTrie::longest_start(std::string_view text) const {
  Match longest;
  std::uint32_t node = 1;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const Slot& slot = slots_[find_slot(key_of(node, text[i]))];
    if (slot.key == 0) break;
    node = slot.child;
    if (ids_[node] != kNoToken) longest = {i + 1, ids_[node]};
  }
  return longest;
}

}  // namespace batchmill
