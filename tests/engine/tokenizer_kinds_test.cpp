// What holds for every kind of tokenizer: round trips, streaming, marked text and linear time, on
// the tiny vocabularies of tests/data/tokenizers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "engine/normalization.h"
#include "engine/sentencepiece.h"
#include "engine/tokenizer.h"
#include "engine/tokenizer_file.h"
#include "engine/unicode.h"
#include "tests/support/utf8_text.h"

namespace batchmill {
namespace {

using ::testing::ElementsAre;

std::unique_ptr<Tokenizer> open(const std::string& name) {
  return open_tokenizer(BATCHMILL_TEST_DATA "/tokenizers/" + name);
}

std::string random_text(std::mt19937* random) {
  static const std::vector<std::string> parts = {
      " ", "  ",      "\n",   "The", "nets",   "<b>", "é", "e\u0301", "中",   "港は", "한",
      "😀", "ह\u093f", "1984", "'ll", "\u3000", ".",   ",", "##",      "\x01", "ſ",    "Ω"};
  std::string text;
  for (std::size_t n = (*random)() % 20; n > 0; --n) text += parts[(*random)() % parts.size()];
  return text;
}

class TokenizerKindTest : public ::testing::TestWithParam<const char*> {
 protected:
  bool is_words() const { return std::string_view(GetParam()).starts_with("words"); }
  bool has_space_marks() const { return std::string_view(GetParam()).starts_with("spaces"); }

  std::unique_ptr<Tokenizer> tokenizer_ = open(GetParam());
};

TEST_P(TokenizerKindTest, DecodingGivesTheTextBack) {
  if (is_words()) return;  // gives words back, not their text
  std::mt19937 random(51);
  for (int round = 0; round < 2000; ++round) {
    std::string text = random_text(&random);
    if (tokenizer_->vocabulary().normalizes.value_or(false)) text = to_nfc(text);
    // A text that begins with a space is not told from one that gets it.
    if (has_space_marks() && text.starts_with(' ')) text.insert(0, "x");
    ASSERT_EQ(tokenizer_->decode(tokenizer_->encode(text, round % 2 == 0), true), text);
  }
}

TEST_P(TokenizerKindTest, WordsThatCameFromIdsGiveThemBack) {
  if (!is_words()) return;
  std::mt19937 random(52);
  for (int round = 0; round < 2000; ++round) {
    const std::vector<TokenId> ids = tokenizer_->encode(random_text(&random), true);
    for (const TokenId id : ids) ASSERT_LT(id, tokenizer_->vocab_size());
    const std::string text = tokenizer_->decode(ids, true);
    ASSERT_EQ(tokenizer_->decode(tokenizer_->encode(text, true), true), text);
  }
}

TEST_P(TokenizerKindTest, StreamingGivesTheWholeText) {
  std::mt19937 random(53);
  for (int round = 0; round < 2000; ++round) {
    std::vector<TokenId> ids(random() % 30);
    for (TokenId& id : ids) id = static_cast<TokenId>(random() % tokenizer_->vocab_size());
    const bool with_special = round % 2 == 0;
    Detokenizer from_start(tokenizer_.get(), with_special);
    Detokenizer continuing(tokenizer_.get(), with_special, /*continues_text=*/true);
    std::string text;
    std::string continued;
    for (const TokenId id : ids) {
      const std::string chunk = from_start.append(id);
      ASSERT_EQ(valid_utf8_prefix(chunk), chunk.size());
      text += chunk;
      continued += continuing.append(id);
    }
    text += from_start.finish();
    continued += continuing.finish();
    ASSERT_EQ(text, tokenizer_->decode(ids, with_special));
    // An answer is what its tokens add to the text before.
    const std::vector<TokenId> before = tokenizer_->encode("nets", false);
    std::vector<TokenId> all = before;
    all.insert(all.end(), ids.begin(), ids.end());
    ASSERT_EQ(tokenizer_->decode(before, true) + continued, tokenizer_->decode(all, with_special));
  }
}

TEST_P(TokenizerKindTest, MarkedTextNeverBecomesAControlToken) {
  const Vocabulary& vocabulary = tokenizer_->vocabulary();
  std::vector<std::string> spellings = {"<", ">", " ", "\n", "[", "x", "\xE4"};
  std::vector<TokenId> control;
  for (TokenId id = 0; id < tokenizer_->vocab_size(); ++id) {
    const TokenKind kind = vocabulary.kinds[static_cast<std::size_t>(id)];
    const std::string spelling(tokenizer_->piece(id));
    if (kind != TokenKind::kControl && spelling != "<tool>") continue;
    // The unknown token also stands for words that are unknown.
    if (id != vocabulary.unknown_token) control.push_back(id);
    spellings.push_back(spelling);
    spellings.push_back(spelling.substr(0, spelling.size() / 2));
    spellings.push_back(spelling.substr(spelling.size() / 2));
  }
  ASSERT_GE(control.size(), 3u);
  std::mt19937 random(54);
  for (int round = 0; round < 5000; ++round) {
    MarkedText text;
    std::vector<TokenId> written;  // by the template alone
    for (std::size_t n = random() % 8; n > 0; --n) {
      if (random() % 2 == 0) {
        const std::size_t begin = text.text.size();
        for (std::size_t k = random() % 4; k > 0; --k) {
          text.text += spellings[random() % spellings.size()];
        }
        text.marked.push_back({begin, text.text.size()});
      } else {
        written.push_back(control[random() % control.size()]);
        text.text += tokenizer_->piece(written.back());
      }
    }
    std::vector<TokenId> found = tokenizer_->encode(text);
    std::erase_if(found,
                  [&](TokenId id) { return std::ranges::find(control, id) == control.end(); });
    ASSERT_EQ(found, written) << text.text;
  }
}

TEST_P(TokenizerKindTest, MarksChangeNothingElse) {
  std::mt19937 random(55);
  for (int round = 0; round < 2000; ++round) {
    const std::string text = random_text(&random);
    const std::size_t begin = random() % (text.size() + 1);
    const MarkedText marked{text, {{begin, begin + random() % 9}}};
    ASSERT_EQ(tokenizer_->encode(marked), tokenizer_->encode(text, true)) << text;
  }
}

TEST_P(TokenizerKindTest, LongTextsTakeLinearTime) {
  // Quadratic work on these would take hours, which the test's time limit notices.
  for (const char* unit : {"a", " ", "\n", "<", "<|end", "\xFF", "\u3000", "'s", "ab1", "▁",
                           "e\u0301", "\u0301", "中", "ªA", "</s> ", " <|end|>"}) {
    std::string text;
    while (text.size() < 300'000) text += unit;
    const std::vector<TokenId> ids = tokenizer_->encode(text, true);
    EXPECT_EQ(ids.empty(), is_words() && tokenizer_->decode(ids, true).empty()) << unit;
  }
}

INSTANTIATE_TEST_SUITE_P(All, TokenizerKindTest,
                         ::testing::Values("gpt-2", "smollm", "dbrx", "qwen2", "gpt-4o",
                                           "deepseek-v3", "spaces-first", "spaces-always",
                                           "spaces-prepend", "spaces-none", "words", "words-cased"),
                         [](const auto& test) {
                           std::string name = test.param;
                           std::erase(name, '-');
                           return name;
                         });

TEST(SpacePrefixTest, AnAnswerKeepsTheSpaceOfItsFirstToken) {
  const auto tokenizer = open("spaces-prepend");
  const std::vector<TokenId> ids = tokenizer->encode("The nets", false);
  Detokenizer answer(tokenizer.get(), false, /*continues_text=*/true);
  Detokenizer text(tokenizer.get(), false);
  std::string answered;
  std::string alone;
  for (const TokenId id : ids) {
    answered += answer.append(id);
    alone += text.append(id);
  }
  EXPECT_EQ(answered, " The nets");
  EXPECT_EQ(alone, "The nets");
}

TEST(SpacePrefixTest, OnlyOneSpaceIsLeftOutAndOnlyAtTheStart) {
  const auto tokenizer = open("spaces-prepend");
  const TokenId space = tokenizer->find(kSpaceMark);
  const TokenId start = tokenizer->find("<s>");
  EXPECT_EQ(tokenizer->decode(std::vector{space, space, space}, true), "  ");
  EXPECT_EQ(tokenizer->decode(std::vector{start, space}, true), "<s> ");
  EXPECT_EQ(tokenizer->decode(std::vector{start, space, space}, false), " ");
}

TEST(StrippingTest, SpecialTokensTakeWhiteSpaceAlong) {
  const auto tokenizer = open("spaces-none");
  const TokenId end = tokenizer->find("<|end|>");
  const TokenId stop = tokenizer->find("</s>");
  EXPECT_EQ(tokenizer->encode("<|end|> \n\u3000 nets", true),
            tokenizer->encode("<|end|>nets", true));
  EXPECT_EQ(tokenizer->encode("nets \u00A0</s>", true), tokenizer->encode("nets</s>", true));
  EXPECT_THAT(tokenizer->encode("<|end|>  </s>", true), ElementsAre(end, stop));
  EXPECT_NE(tokenizer->encode("<|end|> nets", false), tokenizer->encode("<|end|>nets", false));
}

TEST(PlainEntriesTest, MatchInMessagesButMarkupDoesNot) {
  Vocabulary vocabulary;
  vocabulary.model = "llama";
  vocabulary.merge_order = MergeOrder::kScores;
  vocabulary.tokens = {"<", ">", "/", "b", "s", "t", "▁", "▁▁", "<b>", "</s>", "<t>", "<0x21>"};
  vocabulary.kinds.assign(7, TokenKind::kNormal);
  vocabulary.kinds.insert(vocabulary.kinds.end(), 4, TokenKind::kUserDefined);
  vocabulary.kinds.push_back(TokenKind::kByte);
  vocabulary.scores.assign(12, 0.0F);
  const auto tokenizer = Tokenizer::create(vocabulary);
  const std::string text = "<b>  </s><t>!?";
  EXPECT_THAT(tokenizer->encode(text, false), ElementsAre(8, 7, 9, 10, 11));
  EXPECT_THAT(tokenizer->encode(MarkedText{text, {{0, text.size()}}}),
              ElementsAre(8, 7, 0, 2, 4, 1, 0, 5, 1, 11));
}

}  // namespace
}  // namespace batchmill
