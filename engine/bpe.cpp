#include "engine/bpe.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <limits>
#include <stdexcept>
#include <string>

#include "engine/byte_alphabet.h"

namespace batchmill {
namespace {

// Up to here a scan over all pairs is faster than a heap.
constexpr std::size_t kMaxShortSymbols = 32;

// Entries longer than this are left to merging: checking them at construction would take long.
constexpr std::size_t kMaxWholePieceBytes = 256;

constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();

[[noreturn]] void fail_merge(std::size_t rank, const std::string& merge, const std::string& why) {
  throw std::runtime_error("vocabulary: merge " + std::to_string(rank) + " (" + quoted(merge) +
                           ") " + why);
}

// Merging must not turn plain text into these.
bool may_come_from_text(TokenKind kind) {
  return kind == TokenKind::kNormal || kind == TokenKind::kByte || kind == TokenKind::kUserDefined;
}

}  // namespace

Bpe::Bpe(const Vocabulary& vocabulary, const VocabularyIndex& index, bool whole_pieces_first)
    : pieces_(vocabulary.tokens.size()) {
  read_bytes(index);
  read_merges(vocabulary, index);
  read_pieces(index, whole_pieces_first);
}

void Bpe::read_bytes(const VocabularyIndex& index) {
  bool any = false;
  for (int byte = 0; byte < 256; ++byte) {
    const char value = static_cast<char>(byte);
    const TokenId id = index.find(spelling_of_bytes({&value, 1}));
    const bool is_byte = id != kNoToken && (index.kind(id) == TokenKind::kNormal ||
                                            index.kind(id) == TokenKind::kByte);
    byte_tokens_[byte] = is_byte ? id : kNoToken;
    any = any || is_byte;
  }
  if (!any) throw std::runtime_error("vocabulary: it has no token for any single byte");
}

void Bpe::read_merges(const Vocabulary& vocabulary, const VocabularyIndex& index) {
  const std::vector<std::string>& merges = vocabulary.merges;
  if (merges.size() > VocabularyIndex::kMaxTokens) {
    throw std::runtime_error("vocabulary: " + std::to_string(merges.size()) +
                             " merges are too many");
  }
  merges_.resize(std::bit_ceil(std::max<std::size_t>(merges.size() * 2, 2)));
  shift_ = 64 - static_cast<std::uint32_t>(std::countr_zero(merges_.size()));
  for (std::size_t rank = 0; rank < merges.size(); ++rank) {
    const std::string& merge = merges[rank];
    const std::size_t space = merge.find(' ');
    if (space == std::string::npos || space == 0 || space + 1 == merge.size()) {
      fail_merge(rank, merge, "is not two tokens with a space between them");
    }
    const std::string left = merge.substr(0, space);
    const std::string right = merge.substr(space + 1);
    const auto id_of = [&](const std::string& token) {
      const TokenId id = index.find(token);
      if (id == kNoToken) fail_merge(rank, merge, "needs " + quoted(token) + ", which is no token");
      return id;
    };
    const std::uint64_t pair = pair_of(id_of(left), id_of(right));
    const TokenId joined = id_of(left + right);
    std::size_t slot = slot_of(pair);
    while (merges_[slot].pair != kNoPair) {
      if (merges_[slot].pair == pair) {
        fail_merge(rank, merge, "is also merge " + std::to_string(merges_[slot].rank));
      }
      slot = (slot + 1) & (merges_.size() - 1);
    }
    const bool allowed = may_come_from_text(index.kind(joined));
    merges_[slot] = {pair, static_cast<std::uint32_t>(rank), allowed ? joined : kNoToken};
  }
}

void Bpe::read_pieces(const VocabularyIndex& index, bool whole_pieces_first) {
  Scratch scratch;
  for (TokenId id = 0; id < index.size(); ++id) {
    if (index.kind(id) != TokenKind::kNormal) continue;
    const auto bytes = bytes_of_spelling(index.spelling(id));
    if (!bytes || bytes->empty() || bytes->size() > kMaxWholePieceBytes) continue;
    if (!whole_pieces_first) {
      merge(*bytes, &scratch);
      if (scratch.ids.size() != 1 || scratch.ids[0] != id) continue;
    }
    pieces_.insert(*bytes, id);
  }
}

const Bpe::Merge* Bpe::find_merge(TokenId left, TokenId right) const {
  const std::uint64_t pair = pair_of(left, right);
  std::size_t slot = slot_of(pair);
  while (merges_[slot].pair != pair) {
    if (merges_[slot].pair == kNoPair) return nullptr;
    slot = (slot + 1) & (merges_.size() - 1);
  }
  return merges_[slot].joined == kNoToken ? nullptr : &merges_[slot];
}

void Bpe::encode(std::string_view piece, Scratch* scratch, std::vector<TokenId>* ids) const {
  if (piece.empty()) return;
  const TokenId whole = pieces_.find(piece);
  if (whole != kNoToken) {
    ids->push_back(whole);
    return;
  }
  merge(piece, scratch);
  ids->insert(ids->end(), scratch->ids.begin(), scratch->ids.end());
}

void Bpe::merge(std::string_view piece, Scratch* scratch) const {
  scratch->ids.clear();
  for (const char byte : piece) {
    const TokenId id = byte_tokens_[static_cast<unsigned char>(byte)];
    if (id != kNoToken) scratch->ids.push_back(id);
  }
  if (scratch->ids.size() <= kMaxShortSymbols) {
    merge_short(&scratch->ids);
  } else {
    merge_long(scratch);
  }
}

void Bpe::merge_short(std::vector<TokenId>* ids) const {
  if (ids->size() < 2) return;
  std::array<const Merge*, kMaxShortSymbols> merges;  // [i] joins symbols i and i + 1
  std::size_t num_pairs = ids->size() - 1;
  for (std::size_t i = 0; i < num_pairs; ++i) merges[i] = find_merge((*ids)[i], (*ids)[i + 1]);
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
    if (best > 0) merges[best - 1] = find_merge((*ids)[best - 1], (*ids)[best]);
    if (best < num_pairs) merges[best] = find_merge((*ids)[best], (*ids)[best + 1]);
  }
  ids->resize(num_pairs + 1);
}

bool Bpe::add_candidate(std::uint32_t left, Scratch* scratch) const {
  const std::uint32_t right = scratch->symbols[left].next;
  if (right == kNone) return false;
  const Merge* found = find_merge(scratch->symbols[left].id, scratch->symbols[right].id);
  if (found == nullptr) return false;
  scratch->heap.push_back(std::uint64_t{found->rank} << 32 | left);
  return true;
}

void Bpe::merge_long(Scratch* scratch) const {
  std::vector<Scratch::Symbol>& symbols = scratch->symbols;
  std::vector<std::uint64_t>& heap = scratch->heap;
  if (scratch->ids.size() >= kNone) throw std::length_error("tokenizer: a piece of over 4 GiB");
  const auto num_symbols = static_cast<std::uint32_t>(scratch->ids.size());
  symbols.clear();
  heap.clear();
  for (std::uint32_t i = 0; i < num_symbols; ++i) {
    const std::uint32_t next = i + 1 < num_symbols ? i + 1 : kNone;
    symbols.push_back({scratch->ids[i], i == 0 ? kNone : i - 1, next});
  }
  for (std::uint32_t i = 0; i < num_symbols; ++i) add_candidate(i, scratch);
  // The smallest comes first: the best merge, the leftmost among equals.
  std::make_heap(heap.begin(), heap.end(), std::greater<>());
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), std::greater<>());
    const auto rank = static_cast<std::uint32_t>(heap.back() >> 32);
    const auto index = static_cast<std::uint32_t>(heap.back());
    heap.pop_back();
    Scratch::Symbol& left = symbols[index];
    // A symbol that was joined to its left neighbour has no id any more.
    if (left.id == kNoToken || left.next == kNone) continue;
    Scratch::Symbol& right = symbols[left.next];
    const Merge* found = find_merge(left.id, right.id);
    if (found == nullptr || found->rank != rank) continue;
    left.id = found->joined;
    right.id = kNoToken;
    left.next = right.next;
    if (left.next != kNone) symbols[left.next].previous = index;
    const auto push = [&](std::uint32_t first) {
      if (add_candidate(first, scratch)) {
        std::push_heap(heap.begin(), heap.end(), std::greater<>());
      }
    };
    push(index);
    if (left.previous != kNone) push(left.previous);
  }
  scratch->ids.clear();
  for (std::uint32_t i = 0; i != kNone; i = symbols[i].next) scratch->ids.push_back(symbols[i].id);
}

}  // namespace batchmill
