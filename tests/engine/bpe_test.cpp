#include "engine/bpe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "engine/byte_alphabet.h"
#include "engine/gguf_vocabulary.h"

namespace batchmill {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;

// The letters a to e as ids 0 to 4, then what the merges make, in order.
Vocabulary letters(std::vector<std::string> merges) {
  Vocabulary vocabulary;
  vocabulary.tokens = {"a", "b", "c", "d", "e"};
  for (const std::string& merge : merges) {
    std::string joined = merge;
    joined.erase(joined.find(' '), 1);
    if (std::ranges::find(vocabulary.tokens, joined) == vocabulary.tokens.end()) {
      vocabulary.tokens.push_back(joined);
    }
  }
  vocabulary.merges = std::move(merges);
  return vocabulary;
}

std::vector<TokenId> encode(const Vocabulary& vocabulary, std::string_view piece,
                            bool whole_pieces_first = false) {
  const VocabularyIndex index(&vocabulary);
  const Bpe bpe(vocabulary, index, whole_pieces_first);
  MergeScratch scratch;
  std::vector<TokenId> ids;
  bpe.encode(piece, &scratch, &ids);
  return ids;
}

// Joins the best, leftmost pair until none is left.
std::vector<TokenId> encode_slowly(const Vocabulary& vocabulary, std::string_view piece) {
  const VocabularyIndex index(&vocabulary);
  std::map<std::pair<std::string, std::string>, std::size_t> ranks;
  for (std::size_t rank = 0; rank < vocabulary.merges.size(); ++rank) {
    const std::string& merge = vocabulary.merges[rank];
    const std::size_t space = merge.find(' ');
    ranks[{merge.substr(0, space), merge.substr(space + 1)}] = rank;
  }
  std::vector<std::string> symbols;
  for (const char byte : piece) {
    std::string spelling = spelling_of_bytes({&byte, 1});
    if (index.find(spelling) != kNoToken) symbols.push_back(std::move(spelling));
  }
  while (true) {
    std::size_t best_rank = vocabulary.merges.size();
    std::size_t best = 0;
    for (std::size_t i = 0; i + 1 < symbols.size(); ++i) {
      const auto found = ranks.find({symbols[i], symbols[i + 1]});
      if (found != ranks.end() && found->second < best_rank) {
        best_rank = found->second;
        best = i;
      }
    }
    if (best_rank == vocabulary.merges.size()) break;
    symbols[best] += symbols[best + 1];
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
  std::vector<TokenId> ids;
  for (const std::string& symbol : symbols) ids.push_back(index.find(symbol));
  return ids;
}

TEST(BpeTest, TakesTheBestMergeFirstThenTheLeftmost) {
  const Vocabulary vocabulary = letters({"b c", "a b", "a a"});  // bc 5, ab 6, aa 7
  EXPECT_THAT(encode(vocabulary, "abc"), ElementsAre(0, 5));
  EXPECT_THAT(encode(vocabulary, "aaa"), ElementsAre(7, 0));
  EXPECT_THAT(encode(vocabulary, ""), ElementsAre());
}

TEST(BpeTest, LeavesOutBytesWithoutATokenBeforeMerging) {
  const Vocabulary vocabulary = letters({"a b"});
  EXPECT_THAT(encode(vocabulary, "axb"), ElementsAre(5));
  EXPECT_THAT(encode(vocabulary, "xyz"), ElementsAre());
}

TEST(BpeTest, MergingMayNotReachAnEntryThatIsAWholePiece) {
  Vocabulary vocabulary = letters({"b c", "a b", "ab c"});  // "a bc" has no merge
  EXPECT_THAT(encode(vocabulary, "abc"), ElementsAre(0, 5));
  EXPECT_THAT(encode(vocabulary, "abc", true), ElementsAre(7));
  EXPECT_THAT(encode(vocabulary, "abcd", true), ElementsAre(0, 5, 3));
}

TEST(BpeTest, NeverMakesAControlToken) {
  Vocabulary vocabulary = letters({"a b", "ab c"});  // ab 5, abc 6
  vocabulary.kinds.assign(vocabulary.tokens.size(), TokenKind::kNormal);
  vocabulary.kinds[6] = TokenKind::kControl;
  EXPECT_THAT(encode(vocabulary, "abc"), ElementsAre(5, 2));
  EXPECT_THAT(encode(vocabulary, "abc", true), ElementsAre(5, 2));
}

TEST(BpeTest, AgreesWithSlowMergingOnRandomVocabularies) {
  std::mt19937 random(11);
  for (int round = 0; round < 400; ++round) {
    std::vector<std::string> parts = {"a", "b", "c", "d", "e"};
    std::vector<std::string> merges;
    for (int i = 0; i < 40; ++i) {
      const std::string left = parts[random() % parts.size()];
      const std::string right = parts[random() % parts.size()];
      const std::string merge = left + " " + right;
      if (left.size() + right.size() > 24 || std::ranges::count(merges, merge) > 0) continue;
      merges.push_back(merge);
      parts.push_back(left + right);
    }
    const Vocabulary vocabulary = letters(merges);
    for (int piece = 0; piece < 20; ++piece) {
      std::string text(1 + random() % 120, 'a');  // short and long pieces
      for (char& c : text) c = static_cast<char>('a' + random() % 6);  // f has no token
      ASSERT_THAT(encode(vocabulary, text), ElementsAreArray(encode_slowly(vocabulary, text)))
          << text;
    }
  }
}

TEST(BpeTest, LongRunsOfOneLetterMergeInPairs) {
  const Vocabulary vocabulary = letters({"a a", "aa aa"});  // aa 5, aaaa 6
  const std::vector<TokenId> ids = encode(vocabulary, std::string(1'000'003, 'a'));
  EXPECT_EQ(ids.size(), 250'002u);
  EXPECT_EQ(std::ranges::count(ids, 6), 250'000);
  EXPECT_EQ(ids[ids.size() - 2], 5);
  EXPECT_EQ(ids.back(), 0);
}

TEST(ByteAlphabetTest, EveryByteHasItsOwnCharacter) {
  for (int byte = 0; byte < 256; ++byte) {
    const std::string bytes(1, static_cast<char>(byte));
    EXPECT_EQ(bytes_of_spelling(spelling_of_bytes(bytes)), bytes);
  }
  EXPECT_EQ(spelling_of_bytes(" \n\x7F\xAD"
                              "a"),
            "ĠĊġŃa");
  EXPECT_EQ(bytes_of_spelling("a b"), std::nullopt);
  EXPECT_EQ(bytes_of_spelling("中"), std::nullopt);
  EXPECT_EQ(bytes_of_spelling("\xC4"), std::nullopt);
}

}  // namespace
}  // namespace batchmill
