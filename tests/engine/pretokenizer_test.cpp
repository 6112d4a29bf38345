#include "engine/pretokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <random>

#include "engine/unicode.h"
#include "tests/support/utf8_text.h"

namespace batchmill {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;

std::vector<std::string> pieces(std::string_view pre_tokenizer, const std::string& text) {
  std::vector<std::size_t> ends;
  find_pre_tokenizer(pre_tokenizer)->split(text, &ends);
  std::vector<std::string> found;
  std::size_t begin = 0;
  for (const std::size_t end : ends) {
    found.push_back(text.substr(begin, end - begin));
    begin = end;
  }
  EXPECT_EQ(begin, text.size());
  return found;
}

// ---- A slow reference: a backtracking matcher of the published expressions, over code points.

using Text = std::u32string;
using Predicate = std::function<bool(char32_t)>;

// One repeated class; greedy.
struct Item {
  Predicate matches;
  std::size_t min;
  std::size_t max;
};
struct Alternative {
  std::vector<Item> items;
  bool not_before_non_space = false;  // (?!\S) at the end
  bool at_end = false;  // $ at the end
  std::vector<Alternative> optional_ends = {};  // one of them follows; the last matches nothing
};
using Expression = std::vector<Alternative>;

constexpr std::size_t kMany = 1000;

bool is_letter(char32_t c) { return char_class(c) == CharClass::kLetter; }
bool is_number(char32_t c) { return char_class(c) == CharClass::kNumber; }
bool is_space(char32_t c) { return char_class(c) == CharClass::kSpace; }
bool is_other(char32_t c) { return char_class(c) == CharClass::kOther; }
bool is_newline(char32_t c) { return c == U'\r' || c == U'\n'; }
bool is_blank(char32_t c) { return c == U' '; }

std::optional<std::size_t> match(const Text& text, std::size_t at, const Alternative& alternative,
                                 std::size_t item = 0) {
  if (item == alternative.items.size()) {
    if (alternative.not_before_non_space && at < text.size() && !is_space(text[at])) return {};
    if (alternative.at_end && at < text.size()) return {};
    for (const Alternative& end : alternative.optional_ends) {
      if (const auto found = match(text, at, end)) return found;
    }
    return at;
  }
  const Item& now = alternative.items[item];
  std::size_t count = 0;
  while (count < now.max && at + count < text.size() && now.matches(text[at + count])) ++count;
  for (; count + 1 > now.min; --count) {
    if (const auto end = match(text, at + count, alternative, item + 1)) return end;
    if (count == 0) break;
  }
  return {};
}

std::vector<Text> split(const Text& text, const Expression& expression) {
  std::vector<Text> found;
  for (std::size_t at = 0; at < text.size();) {
    std::optional<std::size_t> end;
    for (const Alternative& alternative : expression) {
      if ((end = match(text, at, alternative))) break;
    }
    if (!end) throw std::logic_error("the expression covers every character");
    found.push_back(text.substr(at, *end - at));
    at = *end;
  }
  return found;
}

void add_contractions(Expression* expression, bool ignore_case) {
  for (const std::u32string word : {U"'s", U"'t", U"'re", U"'ve", U"'m", U"'ll", U"'d"}) {
    Alternative alternative;
    for (const char32_t wanted : word) {
      const auto matches = [wanted, ignore_case](char32_t c) {
        if (ignore_case && c >= U'A' && c <= U'Z') c = c - U'A' + U'a';
        if (ignore_case && c == U'\u017F') c = U's';
        return c == wanted;
      };
      alternative.items.push_back({matches, 1, 1});
    }
    expression->push_back(std::move(alternative));
  }
}

Expression gpt2_expression() {
  Expression e;
  add_contractions(&e, false);
  e.push_back({{{is_blank, 0, 1}, {is_letter, 1, kMany}}});
  e.push_back({{{is_blank, 0, 1}, {is_number, 1, kMany}}});
  e.push_back({{{is_blank, 0, 1}, {is_other, 1, kMany}}});
  e.push_back({{{is_space, 1, kMany}}, true});
  e.push_back({{{is_space, 1, kMany}}});
  return e;
}

Expression llama3_expression(std::size_t max_digits = 3, bool whole_last_spaces = false) {
  const auto leading = [](char32_t c) { return !is_newline(c) && !is_letter(c) && !is_number(c); };
  Expression e;
  add_contractions(&e, true);
  e.push_back({{{leading, 0, 1}, {is_letter, 1, kMany}}});
  e.push_back({{{is_number, 1, max_digits}}});
  e.push_back({{{is_blank, 0, 1}, {is_other, 1, kMany}, {is_newline, 0, kMany}}});
  if (whole_last_spaces) e.push_back({{{is_space, 1, kMany}}, false, true});
  e.push_back({{{is_space, 0, kMany}, {is_newline, 1, kMany}}});
  e.push_back({{{is_space, 1, kMany}}, true});
  e.push_back({{{is_space, 1, kMany}}});
  return e;
}

Expression o200k_expression() {
  const auto is_one_of = [](char32_t c, std::initializer_list<CharCategory> categories) {
    return std::ranges::find(categories, char_category(c)) != categories.end();
  };
  using enum CharCategory;
  const auto upper = [=](char32_t c) { return is_one_of(c, {kUpperLetter, kOtherLetter, kMark}); };
  const auto lower = [=](char32_t c) { return is_one_of(c, {kLowerLetter, kOtherLetter, kMark}); };
  const auto leading = [](char32_t c) { return !is_newline(c) && !is_letter(c) && !is_number(c); };
  const auto is_break_or_slash = [](char32_t c) { return is_newline(c) || c == U'/'; };
  Expression contractions;
  add_contractions(&contractions, true);
  contractions.emplace_back();
  Expression e;
  for (const bool ends_lower : {true, false}) {
    // The word without its optional contraction must fail before the next form is tried.
    const Alternative word{{{leading, 0, 1},
                            {upper, ends_lower ? 0u : 1u, kMany},
                            {lower, ends_lower ? 1u : 0u, kMany}}};
    e.push_back(word);
    e.back().optional_ends = contractions;
  }
  e.push_back({{{is_number, 1, 3}}});
  e.push_back({{{is_blank, 0, 1}, {is_other, 1, kMany}, {is_break_or_slash, 0, kMany}}});
  e.push_back({{{is_space, 0, kMany}, {is_newline, 1, kMany}}});
  e.push_back({{{is_space, 1, kMany}}, true});
  e.push_back({{{is_space, 1, kMany}}});
  return e;
}

// Each number alone, then the gpt-2 expression inside what lies between.
std::vector<Text> split_smollm(const Text& text) {
  std::vector<Text> found;
  Text rest;
  const auto flush = [&] {
    for (Text& piece : split(rest, gpt2_expression())) found.push_back(std::move(piece));
    rest.clear();
  };
  for (const char32_t c : text) {
    if (is_number(c)) {
      flush();
      found.push_back(Text(1, c));
    } else {
      rest.push_back(c);
    }
  }
  flush();
  return found;
}

std::vector<std::string> all_to_utf8(const std::vector<Text>& texts) {
  std::vector<std::string> all;
  for (const Text& text : texts) all.push_back(testing::to_utf8(text));
  return all;
}

// Texts over few characters of every class, so that all neighbourhoods come up.
Text random_text(std::mt19937* random) {
  static const Text alphabet =
      U"  \t\n\r\u0085\u00A0\u3000\u180E\u200Babsé\u017FSTREVMLDtrevmld''0123½٣.,-_’中\u0301ªǅ/😀";
  Text text((*random)() % 16, U' ');
  for (char32_t& c : text) c = alphabet[(*random)() % alphabet.size()];
  return text;
}

TEST(PreTokenizerTest, Gpt2AgreesWithItsExpression) {
  std::mt19937 random(1);
  const Expression expression = gpt2_expression();
  for (int round = 0; round < 50000; ++round) {
    const Text text = random_text(&random);
    ASSERT_THAT(pieces("gpt-2", testing::to_utf8(text)),
                ElementsAreArray(all_to_utf8(split(text, expression))));
  }
}

TEST(PreTokenizerTest, SmollmAgreesWithItsTwoSteps) {
  std::mt19937 random(2);
  for (int round = 0; round < 50000; ++round) {
    const Text text = random_text(&random);
    ASSERT_THAT(pieces("smollm", testing::to_utf8(text)),
                ElementsAreArray(all_to_utf8(split_smollm(text))));
  }
}

TEST(PreTokenizerTest, LlamaBpeAgreesWithItsExpression) {
  std::mt19937 random(3);
  const Expression expression = llama3_expression();
  for (int round = 0; round < 50000; ++round) {
    const Text text = random_text(&random);
    ASSERT_THAT(pieces("llama-bpe", testing::to_utf8(text)),
                ElementsAreArray(all_to_utf8(split(text, expression))));
  }
}

void expect_agreement(const char* name, const Expression& expression, unsigned seed) {
  std::mt19937 random(seed);
  for (int round = 0; round < 50000; ++round) {
    const Text text = random_text(&random);
    ASSERT_THAT(pieces(name, testing::to_utf8(text)),
                ElementsAreArray(all_to_utf8(split(text, expression))));
  }
}

TEST(PreTokenizerTest, Qwen2AgreesWithItsExpression) {
  expect_agreement("qwen2", llama3_expression(1), 4);
}

TEST(PreTokenizerTest, Cl100kAgreesWithItsExpression) {
  expect_agreement("cl100k", llama3_expression(3, true), 5);
}

TEST(PreTokenizerTest, Gpt4oAgreesWithItsExpression) {
  expect_agreement("gpt-4o", o200k_expression(), 6);
}

TEST(PreTokenizerTest, Gpt2TakesOneSpaceAlongAndLeavesTheLastOfARun) {
  EXPECT_THAT(pieces("gpt-2", "I've  got 12 eggs!! "),
              ElementsAre("I", "'ve", " ", " got", " 12", " eggs", "!!", " "));
}

TEST(PreTokenizerTest, SmollmSplitsEveryDigitFromItsSpace) {
  EXPECT_THAT(pieces("smollm", "in  1984,½"),
              ElementsAre("in", "  ", "1", "9", "8", "4", ",", "½"));
}

TEST(PreTokenizerTest, LlamaBpeTakesThreeDigitsAndPunctuationWithLineBreaks) {
  EXPECT_THAT(pieces("llama-bpe", "(1234)\n\nWE'LL\t go"),
              ElementsAre("(", "123", "4", ")\n\n", "WE", "'LL", "\t", " go"));
}

TEST(PreTokenizerTest, EmptyTextHasNoPieces) { EXPECT_TRUE(pieces("gpt-2", "").empty()); }

TEST(PreTokenizerTest, UnknownNamesAreNotFound) {
  EXPECT_EQ(find_pre_tokenizer("default"), nullptr);
  EXPECT_EQ(find_pre_tokenizer(""), nullptr);
  EXPECT_NE(known_pre_tokenizers().find("smollm"), std::string::npos);
}

}  // namespace
}  // namespace batchmill
