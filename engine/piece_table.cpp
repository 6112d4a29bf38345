#include "engine/piece_table.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace batchmill {
namespace {

constexpr std::uint64_t kHashFactor = 0x9E3779B97F4A7C15u;  // 2^64 / golden ratio

template <class Word>
std::uint64_t load(const char* bytes) {
  Word word;
  std::memcpy(&word, bytes, sizeof word);
  return word;
}

}  // namespace

PieceTable::PieceTable(std::size_t num_pieces)
    : slots_(std::bit_ceil(std::max<std::size_t>(num_pieces * 2, 2))),
      shift_(64 - static_cast<std::uint32_t>(std::countr_zero(slots_.size()))) {}

PieceTable::Key PieceTable::key_of(std::string_view piece) {
  // Overlapping loads instead of a loop; they depend on the length only, so equal pieces give equal
  // keys, and together they cover all bytes.
  const char* bytes = piece.data();
  const std::size_t size = piece.size();
  const std::uint64_t tag = std::uint64_t{size} << 56;
  if (size >= 8) {
    const std::size_t rest = size - 8;
    if (rest == 0) return {load<std::uint64_t>(bytes), tag};
    return {load<std::uint64_t>(bytes), load<std::uint64_t>(bytes + rest) >> 8 * (8 - rest) | tag};
  }
  if (size >= 4) {
    return {load<std::uint32_t>(bytes) | load<std::uint32_t>(bytes + size - 4) << 32, tag};
  }
  const auto byte = [&](std::size_t i) { return load<unsigned char>(bytes + i); };
  return {byte(0) | byte(size / 2) << 8 | byte(size - 1) << 16, tag};
}

std::size_t PieceTable::slot_of(const Key& key) const {
  const std::uint64_t mixed = (key.low ^ std::rotl(key.high * kHashFactor, 32)) * kHashFactor;
  return (mixed ^ mixed >> 32) * kHashFactor >> shift_;
}

void PieceTable::insert(std::string_view piece, TokenId id) {
  if (piece.size() > kMaxShortBytes) {
    long_pieces_.emplace(piece, id);
    return;
  }
  const Key key = key_of(piece);
  std::size_t slot = slot_of(key);
  while (slots_[slot].key.high != 0) slot = (slot + 1) & (slots_.size() - 1);
  slots_[slot] = {key, id};
}

TokenId PieceTable::find(std::string_view piece) const {
  if (piece.size() > kMaxShortBytes) {
    const auto found = long_pieces_.find(piece);
    return found == long_pieces_.end() ? kNoToken : found->second;
  }
  const Key key = key_of(piece);
  std::size_t slot = slot_of(key);
  while (slots_[slot].key.high != 0) {
    if (slots_[slot].key == key) return slots_[slot].id;
    slot = (slot + 1) & (slots_.size() - 1);
  }
  return kNoToken;
}

}  // namespace batchmill
