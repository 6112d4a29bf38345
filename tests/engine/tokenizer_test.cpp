#include "engine/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <random>

#include "engine/byte_alphabet.h"
#include "engine/gguf_vocabulary.h"
#include "engine/unicode.h"
#include "tests/support/utf8_text.h"

namespace batchmill {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;

// The tiny models' vocabulary: 381 byte-level entries after three control tokens.
std::unique_ptr<Tokenizer> tiny_tokenizer() {
  const GgufFile file(BATCHMILL_TEST_DATA "/models/llama3/model-f16.gguf");
  return Tokenizer::create(*read_vocabulary(file));
}

// All bytes (ids 0 to 255), then a few special entries.
enum SpecialId : TokenId {
  kStart = 256,  // control
  kEnd = 257,  // control
  kTool = 258,  // user-defined
  kUnknown = 259,  // unknown
  kSpare = 260,  // unused
  kPadding = 261,  // a placeholder that the converter calls user-defined
  kLetter = 262,  // user-defined, spelled outside the byte alphabet
};

Vocabulary byte_vocabulary() {
  Vocabulary vocabulary;
  vocabulary.model = "gpt2";
  vocabulary.pre_tokenizer = "gpt-2";
  for (int byte = 0; byte < 256; ++byte) {
    const char value = static_cast<char>(byte);
    vocabulary.tokens.push_back(spelling_of_bytes({&value, 1}));
  }
  vocabulary.kinds.assign(256, TokenKind::kNormal);
  const auto add = [&](const char* token, TokenKind kind) {
    vocabulary.tokens.emplace_back(token);
    vocabulary.kinds.push_back(kind);
  };
  add("<start>", TokenKind::kControl);
  add("<end>", TokenKind::kControl);
  add("<tool>", TokenKind::kUserDefined);
  add("<unk>", TokenKind::kUnknown);
  add("<spare>", TokenKind::kUnused);
  add("[PAD261]", TokenKind::kUserDefined);
  add("中", TokenKind::kUserDefined);
  return vocabulary;
}

std::vector<TokenId> bytes_as_ids(std::string_view text) {
  std::vector<TokenId> ids;
  for (const char byte : text) ids.push_back(static_cast<unsigned char>(byte));
  return ids;
}

std::string random_utf8(std::mt19937* random, std::size_t max_chars) {
  std::u32string text((*random)() % max_chars, U' ');
  for (char32_t& c : text) {
    c = static_cast<char32_t>((*random)() % ((*random)() % 2 == 0 ? 0x80 : 0x110000));
    if (c >= 0xD800 && c < 0xE000) c = U' ';
  }
  return testing::to_utf8(text);
}

// Why creating a tokenizer from this vocabulary fails; "" if it does not.
std::string creation_error(Vocabulary vocabulary) {
  try {
    Tokenizer::create(std::move(vocabulary));
    return "";
  } catch (const std::runtime_error& error) {
    return error.what();
  }
}

TEST(TokenizerTest, EncodesWithTheTinyVocabulary) {
  const auto tokenizer = tiny_tokenizer();
  EXPECT_EQ(tokenizer->vocab_size(), 384);
  std::string spelled;
  for (const TokenId id : tokenizer->encode("The sack is in", false)) {
    spelled += std::string(tokenizer->piece(id)) + "|";
  }
  EXPECT_EQ(spelled, "The|Ġsack|Ġis|Ġin|");
}

TEST(TokenizerTest, DecodingGivesTheTextBack) {
  const auto tokenizer = tiny_tokenizer();
  std::mt19937 random(21);
  for (int round = 0; round < 3000; ++round) {
    const std::string text = random_utf8(&random, 60);
    ASSERT_EQ(tokenizer->decode(tokenizer->encode(text, round % 2 == 0), true), text);
  }
}

TEST(TokenizerTest, StreamingGivesTheWholeText) {
  const auto tokenizer = tiny_tokenizer();
  std::mt19937 random(22);
  for (int round = 0; round < 3000; ++round) {
    std::vector<TokenId> ids(random() % 40);
    for (TokenId& id : ids) id = static_cast<TokenId>(random() % 384);
    const bool with_special = round % 2 == 0;
    Detokenizer detokenizer(tokenizer.get(), with_special);
    std::string text;
    for (const TokenId id : ids) {
      const std::string chunk = detokenizer.append(id);
      ASSERT_EQ(valid_utf8_prefix(chunk), chunk.size());
      text += chunk;
    }
    text += detokenizer.finish();
    ASSERT_EQ(text, tokenizer->decode(ids, with_special));
    ASSERT_EQ(detokenizer.finish(), "");
  }
}

TEST(DetokenizerTest, HoldsBackOnlyWhatMayStillBecomeACharacter) {
  const auto tokenizer = Tokenizer::create(byte_vocabulary());
  Detokenizer detokenizer(tokenizer.get(), true);
  EXPECT_EQ(detokenizer.append(0xE4), "");
  EXPECT_EQ(detokenizer.append(0xBD), "");
  EXPECT_EQ(detokenizer.append(0xA0), "你");
  EXPECT_EQ(detokenizer.append(0xF0), "");
  EXPECT_EQ(detokenizer.append('a'),
            "\uFFFD"
            "a");
  EXPECT_EQ(detokenizer.append(0xFF), "\uFFFD");
  EXPECT_EQ(detokenizer.append(0xC3), "");
  EXPECT_EQ(detokenizer.append(kEnd), "\uFFFD<end>");
  EXPECT_EQ(detokenizer.append(0xC3), "");
  EXPECT_EQ(detokenizer.finish(), "\uFFFD");
}

TEST(DetokenizerTest, ALeftOutSpecialTokenDoesNotBreakACharacter) {
  const auto tokenizer = Tokenizer::create(byte_vocabulary());
  Detokenizer detokenizer(tokenizer.get(), false);
  EXPECT_EQ(detokenizer.append(0xC3), "");
  EXPECT_EQ(detokenizer.append(kStart), "");
  EXPECT_EQ(detokenizer.append(0xA9), "é");
}

TEST(TokenizerTest, ControlTokensNeedParsingAndUserDefinedOnesDoNot) {
  const auto tokenizer = Tokenizer::create(byte_vocabulary());
  EXPECT_THAT(tokenizer->encode("<start><tool><unk>", true), ElementsAre(kStart, kTool, kUnknown));
  std::vector<TokenId> plain = bytes_as_ids("<start>");
  plain.push_back(kTool);
  for (const TokenId id : bytes_as_ids("<unk>")) plain.push_back(id);
  EXPECT_THAT(tokenizer->encode("<start><tool><unk>", false), ElementsAreArray(plain));
  EXPECT_THAT(tokenizer->encode("a中", false), ElementsAre('a', kLetter));
}

TEST(TokenizerTest, UnusedEntriesAndPlaceholdersNeverMatch) {
  const auto tokenizer = Tokenizer::create(byte_vocabulary());
  for (const std::string text : {"<spare>", "[PAD261]"}) {
    EXPECT_THAT(tokenizer->encode(text, true), ElementsAreArray(bytes_as_ids(text)));
  }
}

TEST(TokenizerTest, DecodesEachKindOfEntry) {
  const auto tokenizer = Tokenizer::create(byte_vocabulary());
  const std::vector<TokenId> ids = {'a',      kStart,  kTool,  kUnknown, kSpare,
                                    kPadding, kLetter, 100000, kNoToken, 'b'};
  EXPECT_EQ(tokenizer->decode(ids, true), "a<start><tool><unk>中b");
  EXPECT_EQ(tokenizer->decode(ids, false), "a<tool>中b");
  EXPECT_EQ(tokenizer->piece(' '), "Ġ");
  EXPECT_EQ(tokenizer->piece(100000), "");
  EXPECT_EQ(tokenizer->find("<end>"), kEnd);
  EXPECT_EQ(tokenizer->find("Ġ"), ' ');
  EXPECT_EQ(tokenizer->find(" "), kNoToken);
}

TEST(TokenizerTest, MarkedTextKeepsItsSpecialTokensAsText) {
  const auto tokenizer = Tokenizer::create(byte_vocabulary());
  const MarkedText text{"<start><end><tool>x<end>", {{7, 19}}};
  std::vector<TokenId> expected = {kStart};
  for (const TokenId id : bytes_as_ids("<end><tool>x")) expected.push_back(id);
  expected.push_back(kEnd);
  EXPECT_THAT(tokenizer->encode(text), ElementsAreArray(expected));
}

TEST(TokenizerTest, MarksDoNotSplitPieces) {
  const auto tokenizer = tiny_tokenizer();
  const std::string text = "The sack is in the mill";
  for (std::size_t begin = 0; begin < text.size(); ++begin) {
    const MarkedText marked{text, {{begin, begin + 3}}};
    EXPECT_EQ(tokenizer->encode(marked), tokenizer->encode(text, true));
  }
}

TEST(TokenizerTest, MarkedBytesNeverYieldSpecialTokens) {
  const auto tokenizer = Tokenizer::create(byte_vocabulary());
  std::mt19937 random(23);
  const std::string parts[] = {"<start>", "<end>", "<tool>", "<sta", "rt>",
                               "<",       "end>",  "\xE4",   "é"};
  for (int round = 0; round < 5000; ++round) {
    MarkedText text;
    std::vector<TokenId> expected_special;  // written by the template alone
    for (std::size_t n = random() % 8; n > 0; --n) {
      if (random() % 2 == 0) {
        const std::size_t begin = text.text.size();
        for (std::size_t k = random() % 4; k > 0; --k) text.text += parts[random() % 9];
        text.marked.push_back({begin, text.text.size()});
      } else {
        const bool is_start = random() % 2 == 0;
        text.text += is_start ? "<start>" : "<end>";
        expected_special.push_back(is_start ? kStart : kEnd);
      }
    }
    std::vector<TokenId> special = tokenizer->encode(text);
    std::erase_if(special, [](TokenId id) { return id < 256; });
    ASSERT_EQ(special, expected_special) << text.text;
  }
}

TEST(TokenizerTest, ReplacesInvalidBytesFirst) {
  const auto tokenizer = Tokenizer::create(byte_vocabulary());
  EXPECT_EQ(tokenizer->encode("a\xE4\xBD<end>", true), tokenizer->encode("a\uFFFD<end>", true));
  const MarkedText bad{"\xFF<end><end>", {{0, 6}}};
  const MarkedText good{"\uFFFD<end><end>", {{0, 8}}};
  EXPECT_EQ(tokenizer->encode(bad), tokenizer->encode(good));
  EXPECT_EQ(tokenizer->encode(bad).back(), kEnd);
}

TEST(TokenizerTest, RefusesModelsAndPreTokenizersByName) {
  Vocabulary vocabulary = byte_vocabulary();
  vocabulary.pre_tokenizer = "command-r";
  EXPECT_THAT(creation_error(vocabulary), HasSubstr("pre-tokenizer \"command-r\""));
  vocabulary.model = "t5";
  EXPECT_THAT(creation_error(vocabulary), HasSubstr("\"t5\" (Unigram)"));
  vocabulary.model = "";
  EXPECT_THAT(creation_error(vocabulary), HasSubstr("model \"\""));
}

TEST(TokenizerTest, NamesTheBrokenEntry) {
  const auto with = [](const std::function<void(Vocabulary*)>& change) {
    Vocabulary vocabulary = byte_vocabulary();
    change(&vocabulary);
    return creation_error(std::move(vocabulary));
  };
  EXPECT_EQ(with([](Vocabulary*) {}), "");
  EXPECT_THAT(with([](Vocabulary* v) { v->tokens.clear(); }), HasSubstr("no tokens"));
  EXPECT_THAT(with([](Vocabulary* v) { v->tokens[258] = "<end>"; }),
              HasSubstr("tokens 257 and 258 are both \"<end>\""));
  EXPECT_THAT(with([](Vocabulary* v) { v->kinds.pop_back(); }), HasSubstr("262 token kinds"));
  EXPECT_THAT(with([](Vocabulary* v) { v->kinds[7] = static_cast<TokenKind>(9); }),
              HasSubstr("token 7 is of kind 9"));
  EXPECT_THAT(with([](Vocabulary* v) { v->eos_token = 263; }), HasSubstr("eos token is 263"));
  EXPECT_THAT(with([](Vocabulary* v) { v->bos_token = -2; }), HasSubstr("bos token is -2"));
  for (const char* merge : {"", " ", "ab", "a ", " b"}) {
    EXPECT_THAT(with([&](Vocabulary* v) { v->merges = {merge}; }), HasSubstr("merge 0")) << merge;
  }
  EXPECT_THAT(with([](Vocabulary* v) { v->merges = {"a zz"}; }), HasSubstr("needs \"zz\""));
  EXPECT_THAT(with([](Vocabulary* v) { v->merges = {"a b"}; }), HasSubstr("needs \"ab\""));
  EXPECT_THAT(with([](Vocabulary* v) {
                v->tokens[262] = "ab";
                v->merges = {"a b", "a b"};
              }),
              HasSubstr("merge 1 (\"a b\") is also merge 0"));
  Vocabulary no_bytes = byte_vocabulary();
  no_bytes.tokens = {"<start>"};
  no_bytes.kinds = {TokenKind::kControl};
  EXPECT_THAT(creation_error(no_bytes), HasSubstr("single byte"));
}

TEST(TokenizerTest, ErrorsAreOneShortLineOfUtf8) {
  Vocabulary vocabulary = byte_vocabulary();
  vocabulary.merges = {"a " + std::string(100'000, '\n') + "\xFF"};
  const std::string error = creation_error(vocabulary);
  EXPECT_THAT(error, HasSubstr("\"a \\x0a\\x0a"));
  EXPECT_LT(error.size(), 1000u);
  EXPECT_EQ(error.find('\n'), std::string::npos);
  EXPECT_EQ(valid_utf8_prefix(error), error.size());
}

TEST(TokenizerTest, DamagedVocabulariesAreRefusedOrWork) {
  const GgufFile file(BATCHMILL_TEST_DATA "/models/llama3/model-f16.gguf");
  const Vocabulary whole = *read_vocabulary(file);
  std::mt19937 random(29);
  const auto damage = [&](std::string* text) {
    switch (random() % 4) {
      case 0:
        text->clear();
        break;
      case 1:
        text->push_back(static_cast<char>(random() % 256));
        break;
      case 2:
        text->insert(0, "Ġ");
        break;
      default:
        text->resize(text->size() / 2);
        break;
    }
  };
  int num_refused = 0;
  for (int round = 0; round < 2000; ++round) {
    Vocabulary vocabulary = whole;
    switch (random() % 5) {
      case 0:
        damage(&vocabulary.tokens[random() % vocabulary.tokens.size()]);
        break;
      case 1:
        damage(&vocabulary.merges[random() % vocabulary.merges.size()]);
        break;
      case 2:
        vocabulary.tokens.resize(random() % vocabulary.tokens.size());
        break;
      case 3:
        vocabulary.kinds[random() % vocabulary.kinds.size()] = static_cast<TokenKind>(random() % 8);
        break;
      default:
        vocabulary.kinds.clear();
        break;
    }
    try {
      const auto tokenizer = Tokenizer::create(std::move(vocabulary));
      const auto ids = tokenizer->encode("The sack is <|im_start|> in\n", true);
      for (const TokenId id : ids) ASSERT_LT(id, tokenizer->vocab_size());
      const std::string text = tokenizer->decode(ids, true);
      ASSERT_EQ(valid_utf8_prefix(text), text.size());
    } catch (const std::runtime_error& error) {
      ++num_refused;
      ASSERT_THAT(error.what(), HasSubstr("vocabulary: "));
    }
  }
  EXPECT_GT(num_refused, 500);
  EXPECT_LT(num_refused, 1900);
}

TEST(TokenizerTest, LongTextsTakeLinearTime) {
  // Quadratic work on these would take hours, which the test's time limit notices.
  const auto tokenizer = tiny_tokenizer();
  for (const char* unit : {"a", " ", "\n", "<", "<|im_start|", "\xFF", "\u3000", "'s", "ab1"}) {
    std::string text;
    while (text.size() < 1'000'000) text += unit;
    EXPECT_FALSE(tokenizer->encode(text, true).empty()) << unit;
  }
}

}  // namespace
}  // namespace batchmill
