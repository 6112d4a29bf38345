#include "engine/merge_symbols.h"

#include <algorithm>
#include <array>
#include <functional>
#include <limits>
#include <stdexcept>

namespace batchmill {
namespace {

// Up to here a scan over all pairs is faster than a heap.
constexpr std::size_t kMaxShortSymbols = 32;

constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();

void merge_short(const MergeTable& table, std::vector<TokenId>* ids) {
  if (ids->size() < 2) return;
  std::array<const MergeTable::Merge*, kMaxShortSymbols> merges;  // [i] joins symbols i and i + 1
  std::size_t num_pairs = ids->size() - 1;
  for (std::size_t i = 0; i < num_pairs; ++i) merges[i] = table.find((*ids)[i], (*ids)[i + 1]);
  while (true) {
    std::size_t best = num_pairs;
    std::uint32_t best_rank = kNone;
    for (std::size_t i = 0; i < num_pairs; ++i) {
      if (merges[i] != nullptr && merges[i]->rank < best_rank) {
        best = i;
        best_rank = merges[i]->rank;
      }
    }
    if (best == num_pairs) break;
    (*ids)[best] = merges[best]->joined;
    std::copy(ids->begin() + best + 2, ids->begin() + num_pairs + 1, ids->begin() + best + 1);
    std::copy(merges.begin() + best + 1, merges.begin() + num_pairs, merges.begin() + best);
    --num_pairs;
    if (best > 0) merges[best - 1] = table.find((*ids)[best - 1], (*ids)[best]);
    if (best < num_pairs) merges[best] = table.find((*ids)[best], (*ids)[best + 1]);
  }
  ids->resize(num_pairs + 1);
}

// Appends the pair that starts at symbol `left` to the heap's array; false if it does not join.
bool add_candidate(const MergeTable& table, std::uint32_t left, MergeScratch* scratch) {
  const std::uint32_t right = scratch->symbols[left].next;
  if (right == kNone) return false;
  const MergeTable::Merge* found =
      table.find(scratch->symbols[left].id, scratch->symbols[right].id);
  if (found == nullptr) return false;
  scratch->heap.push_back(std::uint64_t{found->rank} << 32 | left);
  return true;
}

void merge_long(const MergeTable& table, MergeScratch* scratch) {
  std::vector<MergeScratch::Symbol>& symbols = scratch->symbols;
  std::vector<std::uint64_t>& heap = scratch->heap;
  if (scratch->ids.size() >= kNone) throw std::length_error("tokenizer: a piece of over 4 GiB");
  const auto num_symbols = static_cast<std::uint32_t>(scratch->ids.size());
  symbols.clear();
  heap.clear();
  for (std::uint32_t i = 0; i < num_symbols; ++i) {
    const std::uint32_t next = i + 1 < num_symbols ? i + 1 : kNone;
    symbols.push_back({scratch->ids[i], i == 0 ? kNone : i - 1, next});
  }
  for (std::uint32_t i = 0; i < num_symbols; ++i) add_candidate(table, i, scratch);
  // The smallest comes first: the best merge, the leftmost among equals.
  std::make_heap(heap.begin(), heap.end(), std::greater<>());
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), std::greater<>());
    const auto rank = static_cast<std::uint32_t>(heap.back() >> 32);
    const auto index = static_cast<std::uint32_t>(heap.back());
    heap.pop_back();
    MergeScratch::Symbol& left = symbols[index];
    // A symbol that was joined to its left neighbour has no id any more.
    if (left.id == kNoToken || left.next == kNone) continue;
    MergeScratch::Symbol& right = symbols[left.next];
    const MergeTable::Merge* found = table.find(left.id, right.id);
    if (found == nullptr || found->rank != rank) continue;
    left.id = found->joined;
    right.id = kNoToken;
    left.next = right.next;
    if (left.next != kNone) symbols[left.next].previous = index;
    const auto push = [&](std::uint32_t first) {
      if (add_candidate(table, first, scratch)) {
        std::push_heap(heap.begin(), heap.end(), std::greater<>());
      }
    };
    push(index);
    if (left.previous != kNone) push(left.previous);
  }
  scratch->ids.clear();
  for (std::uint32_t i = 0; i != kNone; i = symbols[i].next) scratch->ids.push_back(symbols[i].id);
}

}  // namespace

void merge_symbols(const MergeTable& merges, MergeScratch* scratch) {
  if (scratch->ids.size() <= kMaxShortSymbols) {
    merge_short(merges, &scratch->ids);
  } else {
    merge_long(merges, scratch);
  }
}

}  // namespace batchmill
