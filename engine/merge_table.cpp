#include "engine/merge_table.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <stdexcept>
#include <string>
#include <string_view>

#include "engine/unicode.h"

namespace batchmill {
namespace {

// Entries longer than this are not split: that would take long, and no model has them.
constexpr std::size_t kMaxSplitBytes = 512;

[[noreturn]] void fail_merge(std::size_t rank, const std::string& merge, const std::string& why) {
  throw std::runtime_error("vocabulary: merge " + std::to_string(rank) + " (" + quoted(merge) +
                           ") " + why);
}

std::size_t num_chars(std::string_view text) {
  return static_cast<std::size_t>(
      std::ranges::count_if(text, [](char byte) { return (byte & 0xC0) != 0x80; }));
}

void check_scores(const Vocabulary& vocabulary) {
  if (vocabulary.scores.size() != vocabulary.tokens.size()) {
    throw std::runtime_error("vocabulary: " + std::to_string(vocabulary.scores.size()) +
                             " scores for " + std::to_string(vocabulary.tokens.size()) + " tokens");
  }
  for (std::size_t id = 0; id < vocabulary.scores.size(); ++id) {
    if (std::isnan(vocabulary.scores[id])) {
      throw std::runtime_error("vocabulary: the score of token " + std::to_string(id) +
                               " is no number");
    }
  }
}

}  // namespace

MergeTable::MergeTable(const Vocabulary& vocabulary, const VocabularyIndex& index) {
  if (vocabulary.merge_order == MergeOrder::kListed) {
    read_listed(vocabulary, index);
  } else {
    rank_splits(vocabulary, index);
  }
}

void MergeTable::reserve(std::size_t num_merges) {
  slots_.resize(std::bit_ceil(std::max<std::size_t>(num_merges * 2, 2)));
  shift_ = 64 - static_cast<std::uint32_t>(std::countr_zero(slots_.size()));
}

const MergeTable::Merge* MergeTable::insert(TokenId left, TokenId right, Merge merge) {
  const std::uint64_t pair = pair_of(left, right);
  std::size_t slot = slot_of(pair);
  while (slots_[slot].pair != kNoPair) {
    if (slots_[slot].pair == pair) return &slots_[slot].merge;
    slot = (slot + 1) & (slots_.size() - 1);
  }
  slots_[slot] = {pair, merge};
  return nullptr;
}

void MergeTable::read_listed(const Vocabulary& vocabulary, const VocabularyIndex& index) {
  const std::vector<std::string>& merges = vocabulary.merges;
  if (merges.size() > VocabularyIndex::kMaxTokens) {
    throw std::runtime_error("vocabulary: " + std::to_string(merges.size()) +
                             " merges are too many");
  }
  reserve(merges.size());
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
    const TokenId left_id = id_of(left);
    const TokenId right_id = id_of(right);
    const TokenId joined = id_of(left + right);
    const Merge added{static_cast<std::uint32_t>(rank), index.is_text(joined) ? joined : kNoToken};
    if (const Merge* there = insert(left_id, right_id, added)) {
      fail_merge(rank, merge, "is also merge " + std::to_string(there->rank));
    }
  }
}

void MergeTable::rank_splits(const Vocabulary& vocabulary, const VocabularyIndex& index) {
  const bool by_score = vocabulary.merge_order == MergeOrder::kScores;
  if (by_score) check_scores(vocabulary);
  const auto is_part = [&](TokenId id) {
    return id != kNoToken && index.kind(id) != TokenKind::kByte && index.is_text(id);
  };
  std::vector<Split> splits;
  for (TokenId joined = 0; joined < index.size(); ++joined) {
    const std::string_view spelling = index.spelling(joined);
    if (!is_part(joined) || spelling.size() > kMaxSplitBytes) continue;
    for (std::size_t cut = 1; cut < spelling.size(); ++cut) {
      if ((spelling[cut] & 0xC0) == 0x80) continue;  // inside a character
      const TokenId left = index.find(spelling.substr(0, cut));
      if (!is_part(left)) continue;
      const TokenId right = index.find(spelling.substr(cut));
      if (is_part(right)) splits.push_back({left, right, joined});
    }
  }
  // SentencePiece finds user-defined entries before all others, the longest first.
  const auto is_user_defined = [&](const Split& split) {
    return by_score && index.kind(split.joined) == TokenKind::kUserDefined;
  };
  const auto num_chars_of = [&](TokenId id) { return num_chars(index.spelling(id)); };
  const auto comes_before = [&](const Split& a, const Split& b) {
    if (!by_score) return a.joined < b.joined;
    const bool user_defined = is_user_defined(a);
    if (user_defined != is_user_defined(b)) return user_defined;
    if (!user_defined) return vocabulary.scores[a.joined] > vocabulary.scores[b.joined];
    const std::size_t left_a = num_chars_of(a.left);
    const std::size_t left_b = num_chars_of(b.left);
    return left_a != left_b ? left_a > left_b : num_chars_of(a.right) > num_chars_of(b.right);
  };
  std::ranges::stable_sort(splits, comes_before);
  reserve(splits.size());
  std::uint32_t rank = 0;
  for (std::size_t i = 0; i < splits.size(); ++i) {
    if (i > 0 && comes_before(splits[i - 1], splits[i])) ++rank;
    insert(splits[i].left, splits[i].right, {rank, splits[i].joined});
  }
}

}  // namespace batchmill
