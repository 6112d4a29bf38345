#include "engine/special_tokens.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace batchmill {
namespace {

using Match = SpecialTokens::Match;

// "begin-end:id", or "none".
std::string show(const std::optional<Match>& match) {
  if (!match) return "none";
  return std::to_string(match->begin) + "-" + std::to_string(match->end) + ":" +
         std::to_string(match->id);
}

TEST(SpecialTokensTest, LeftmostComesBeforeLongest) {
  SpecialTokens tokens;
  tokens.add("bcd", 1);
  tokens.add("ab", 2);
  tokens.add("abc", 3);
  EXPECT_EQ(show(tokens.find("xabcd", 0, {})), "1-4:3");
  EXPECT_EQ(show(tokens.find("xabcd", 2, {})), "2-5:1");
  EXPECT_EQ(show(tokens.find("xabd", 0, {})), "1-3:2");
  EXPECT_EQ(show(tokens.find("xab", 4, {})), "none");
}

TEST(SpecialTokensTest, WithoutTokensNothingMatches) {
  EXPECT_EQ(show(SpecialTokens().find("text", 0, {})), "none");
}

TEST(SpecialTokensTest, AMatchThatTouchesAMarkedByteIsNoMatch) {
  SpecialTokens tokens;
  tokens.add("<end>", 1);
  tokens.add("<end>\n", 2);
  const std::string text = "<end>\n<end>";
  const std::pair<std::vector<ByteSpan>, std::string> cases[] = {
      {{}, "0-6:2"},
      {{{5, 6}}, "0-5:1"},  // the shorter one is free
      {{{0, 1}}, "6-11:1"},  // its first byte
      {{{4, 5}}, "6-11:1"},  // its last byte
      {{{2, 7}}, "none"},  // both
      {{{0, 2}, {10, 11}}, "none"},
      {{{3, 3}}, "0-6:2"},  // an empty span marks nothing
      {{{5, 100}}, "0-5:1"},  // beyond the text
  };
  for (const auto& [marked, expected] : cases) {
    EXPECT_EQ(show(tokens.find(text, 0, marked)), expected) << ::testing::PrintToString(expected);
  }
}

TEST(SpecialTokensTest, AgreesWithTryingEveryTokenEverywhere) {
  std::mt19937 random(5);
  for (int round = 0; round < 5000; ++round) {
    std::map<std::string, TokenId> entries;
    for (int i = 0; i < 6; ++i) {
      std::string entry(1 + random() % 4, 'a');
      for (char& c : entry) c = static_cast<char>('a' + random() % 3);
      entries.emplace(entry, i);
    }
    SpecialTokens tokens;
    for (const auto& [entry, id] : entries) tokens.add(entry, id);
    std::string text(random() % 12, 'a');
    for (char& c : text) c = static_cast<char>('a' + random() % 4);
    std::vector<bool> is_marked(text.size());
    std::vector<ByteSpan> marked;
    for (std::size_t i = 0; i < text.size(); i += 1 + random() % 4) {
      const std::size_t end = std::min(text.size(), i + random() % 3);
      if (!marked.empty() && marked.back().end > i) continue;
      marked.push_back({i, end});
      for (std::size_t k = i; k < end; ++k) is_marked[k] = true;
    }
    std::string expected = "none";
    for (std::size_t begin = 0; begin < text.size() && expected == "none"; ++begin) {
      for (std::size_t end = begin + 1; end <= text.size() && !is_marked[end - 1]; ++end) {
        const auto found = entries.find(text.substr(begin, end - begin));
        if (found != entries.end()) expected = show(Match{begin, end, found->second, {}});
      }
    }
    ASSERT_EQ(show(tokens.find(text, 0, marked)), expected) << text;
  }
}

}  // namespace
}  // namespace batchmill
