// Tiny tokenizers of every kind against the reference libraries' answers
// (tests/data/make_tokenizers.py), and files that are broken or ask for what is not supported.
#include "engine/hf_vocabulary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <random>

#include "engine/mapped_file.h"
#include "engine/rank_file.h"
#include "engine/tokenizer_file.h"
#include "engine/unicode.h"
#include "tests/engine/temporary_file.h"

namespace batchmill {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

const std::string kFolder = BATCHMILL_TEST_DATA "/tokenizers/";
constexpr const char* kNames[] = {"gpt-2",          "smollm",      "dbrx",         "qwen2",
                                  "gpt-4o",         "deepseek-v3", "spaces-first", "spaces-always",
                                  "spaces-prepend", "spaces-none", "words",        "words-cased"};

std::string read_text(const std::string& path) {
  const MappedFile file(path);
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

json read_json(const std::string& name) {
  return json::parse(read_text(kFolder + name + "/tokenizer.json"));
}

std::unique_ptr<Tokenizer> open_ranks() {
  const std::string text = read_text(kFolder + "ranks.tiktoken");
  return Tokenizer::create(parse_ranks(text, "cl100k", "ranks.tiktoken"));
}

// What reading this as a tokenizer.json and using its tokenizer says; "" if that works.
std::string error_of(const std::string& text) {
  const testing::TemporaryFile file(text);
  try {
    const auto tokenizer = Tokenizer::create(read_tokenizer_json(file.path()));
    const auto ids = tokenizer->encode("The <s> nets, e\u0301 潮汐\n", true);
    const std::string decoded = tokenizer->decode(ids, true);
    EXPECT_EQ(valid_utf8_prefix(decoded), decoded.size());
    return "";
  } catch (const std::runtime_error& error) {
    const std::string_view what = error.what();
    EXPECT_TRUE(what.starts_with(file.path() + ": ") || what.starts_with("vocabulary: ")) << what;
    EXPECT_EQ(what.find('\n'), std::string_view::npos) << what;
    return error.what();
  }
}

std::string error_of_changed(const std::string& name, const std::function<void(json*)>& change) {
  json file = read_json(name);
  change(&file);
  return error_of(file.dump());
}

TEST(HfVocabularyTest, GivesTheReferencesIdsAndTexts) {
  std::map<std::string, std::unique_ptr<Tokenizer>> tokenizers;
  for (const char* name : kNames) tokenizers[name] = open_tokenizer(kFolder + name);
  tokenizers["ranks"] = open_ranks();
  std::ifstream file(kFolder + "cases.jsonl");
  int num_cases = 0;
  for (std::string line; std::getline(file, line); ++num_cases) {
    const json c = json::parse(line);
    const Tokenizer& tokenizer = *tokenizers.at(c["tokenizer"]);
    const auto ids = c["ids"].get<std::vector<TokenId>>();
    ASSERT_EQ(tokenizer.encode(c["text"].get<std::string>(), c.value("special", false)), ids)
        << line;
    ASSERT_EQ(tokenizer.decode(ids, true), c["decoded"].get<std::string>()) << line;
  }
  EXPECT_GT(num_cases, 1000);
}

TEST(HfVocabularyTest, ReadsVocabTxtAsTheSameWords) {
  const auto by_json = open_tokenizer(kFolder + "words/tokenizer.json");
  const auto by_txt = open_tokenizer(kFolder + "words/vocab.txt");
  for (const char* text : {"The Ferry's café", "[CLS] nets [SEP] 潮汐表", "unknown\u2603word"}) {
    EXPECT_EQ(by_txt->encode(text, true), by_json->encode(text, true)) << text;
    EXPECT_EQ(by_txt->encode(text, false), by_json->encode(text, false)) << text;
  }
  EXPECT_EQ(by_txt->piece(by_txt->vocabulary().bos_token), "[CLS]");
  EXPECT_TRUE(by_txt->vocabulary().add_eos);
}

TEST(HfVocabularyTest, AFolderWithoutATokenizerHasNone) {
  EXPECT_EQ(read_hf_vocabulary(BATCHMILL_TEST_DATA "/jobs"), std::nullopt);
}

TEST(HfVocabularyTest, RefusesStepsByName) {
  const auto normalizer = [](const char* value) {
    return [value](json* file) { (*file)["normalizer"] = json::parse(value); };
  };
  const auto model = [](const char* key, const json& value) {
    return [key, value](json* file) { (*file)["model"][key] = value; };
  };
  const std::tuple<const char*, std::function<void(json*)>, const char*> cases[] = {
      {"gpt-2", normalizer(R"({"type": "NFKC"})"), "normalizer: \"NFKC\" is not supported"},
      {"qwen2", normalizer(R"({"type": "Sequence", "normalizers": [{"type": "NFC"},
                                {"type": "Lowercase"}]})"),
       "normalizer: \"NFC\", then \"Lowercase\" is not"},
      {"words", normalizer("null"), "normalizer: nothing is not supported"},
      {"spaces-none",
       normalizer(R"({"type": "Replace", "pattern": {"String": "a"}, "content": "b"})"),
       "normalizer: \"Replace \"a\" \"b\"\" is not"},
      {"dbrx",
       [](json* f) { (*f)["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = "x+"; },
       "pre_tokenizer: \"Split Isolated /x+/\", then \"ByteLevel\" is not"},
      {"gpt-2", [](json* f) { (*f)["pre_tokenizer"]["add_prefix_space"] = true; },
       "\"ByteLevel prefix regex\""},
      {"spaces-first", [](json* f) { (*f)["pre_tokenizer"]["split"] = true; },
       "pre_tokenizer: \"Metaspace first split\" is not"},
      {"spaces-first", [](json* f) { (*f)["decoder"]["decoders"].erase(3); }, "decoder: "},
      {"gpt-2", [](json* f) { (*f)["decoder"] = nullptr; }, "decoder: nothing is not supported"},
      {"gpt-2", model("type", "Unigram"), "model.type: \"Unigram\" is not supported"},
      {"gpt-2", model("dropout", 0.1), "model.dropout: 0.1 is not"},
      {"gpt-2", model("end_of_word_suffix", "</w>"), "model.end_of_word_suffix: \"</w>\" is not"},
      {"spaces-none", model("byte_fallback", false), "model.byte_fallback"},
      {"words", model("continuing_subword_prefix", "@@"), "continuing_subword_prefix: \"@@\""},
      {"gpt-2", [](json* f) { (*f)["added_tokens"][0]["single_word"] = true; },
       "added_tokens[0]: a token that is only found as a single word"},
      {"spaces-prepend", [](json* f) { (*f)["added_tokens"][1]["normalized"] = true; },
       "is to be found in normalized text"},
      {"words",
       [](json* f) {
         (*f)["post_processor"] = json::parse(
             R"({"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "[CLS]"}},
                 {"SpecialToken": {"id": "[CLS]"}}, {"Sequence": {"id": "A"}}],
                 "special_tokens": {"[CLS]": {"ids": [2]}}})");
       },
       "post_processor.single[1]: a second special token"},
  };
  for (const auto& [name, change, expected] : cases) {
    EXPECT_THAT(error_of_changed(name, change), HasSubstr(expected));
  }
}

TEST(HfVocabularyTest, NamesThePlaceThatIsBroken) {
  const std::pair<std::function<void(json*)>, const char*> cases[] = {
      {[](json* f) { (*f)["model"]["vocab"]["a"] = "x"; }, "model.vocab.a: is not an integer"},
      {[](json* f) { (*f)["model"]["vocab"]["a"] = -1; }, "model.vocab.a: -1 is no token id"},
      {[](json* f) { (*f)["model"]["vocab"]["a"] = 9000; }, "far beyond"},
      {[](json* f) { (*f)["model"]["vocab"]["zzz"] = 5; }, "id 5 is both"},
      {[](json* f) { (*f)["model"]["vocab"] = 3; }, "model.vocab: is not an object"},
      {[](json* f) { (*f)["model"]["merges"][3] = 7; }, "model.merges[3]: is not a list"},
      {[](json* f) { (*f)["model"]["merges"][3] = {"a"}; }, "model.merges[3]: is not a pair"},
      {[](json* f) {
         (*f)["model"]["merges"][3] = {"a b", "c"};
       },
       "model.merges[3][0]: a space"},
      {[](json* f) { (*f)["model"]["merges"][3] = "a zzz"; }, "merge 3 (\"a zzz\") needs \"zzz\""},
      {[](json* f) { (*f)["added_tokens"][0]["id"] = 1; }, "added_tokens: id 1 is both"},
      {[](json* f) { (*f)["added_tokens"][0].erase("content"); },
       "added_tokens[0].content: is not a string"},
      {[](json* f) { (*f)["added_tokens"][0]["id"] = 1e30; },
       "added_tokens[0].id: is not an integer"},
      {[](json* f) { (*f)["pre_tokenizer"]["type"] = 1; }, "pre_tokenizer.type: is not a string"},
      {[](json* f) {
         json nested = nullptr;
         for (int i = 0; i < 50; ++i) nested = {{"type", "Sequence"}, {"normalizers", {nested}}};
         (*f)["normalizer"] = nested;
       },
       "nests too deep"},
  };
  for (const auto& [change, expected] : cases) {
    EXPECT_THAT(error_of_changed("gpt-2", change), HasSubstr(expected));
  }
  EXPECT_THAT(error_of("{"), HasSubstr("byte "));
  EXPECT_THAT(error_of("[]"), HasSubstr("model.type: \"\" is not supported"));
  EXPECT_THAT(error_of(std::string(100'000, '[')), HasSubstr("nests deeper than"));
}

TEST(HfVocabularyTest, DamagedFilesAreRefusedOrWork) {
  std::mt19937 random(31);
  int num_refused = 0;
  for (int round = 0; round < 500; ++round) {
    std::string text =
        read_text(kFolder + kNames[random() % std::size(kNames)] + "/tokenizer.json");
    for (int i = 0; i < 2; ++i) {
      const std::size_t at = random() % text.size();
      switch (random() % 4) {
        case 0:
          text[at] = static_cast<char>(random() % 128);
          break;
        case 1:
          text.erase(at, 1 + random() % 8);
          break;
        case 2:
          text.insert(at, 1, "\"{}[],:019n"[random() % 11]);
          break;
        default:
          text.insert(at, text.substr(random() % text.size(), random() % 40));
      }
    }
    if (!error_of(text).empty()) ++num_refused;
  }
  EXPECT_GT(num_refused, 150);
}

TEST(RankFileTest, NamesTheLineThatIsBroken) {
  const auto error = [](const std::string& text) -> std::string {
    try {
      parse_ranks(text, "cl100k", "file");
      return "";
    } catch (const std::runtime_error& e) {
      return e.what();
    }
  };
  EXPECT_EQ(error("YQ== 0\r\nYg== 1\n\nYWI= 2"), "");
  EXPECT_THAT(error("YQ== 0\nYg= 1\n"), HasSubstr("file: line 2: \"Yg= 1\" is not a token"));
  EXPECT_THAT(error("YQ== 0\nYg== -1\n"), HasSubstr("line 2"));
  EXPECT_THAT(error("YQ== 0\nYg== 0\n"), HasSubstr("line 2: the rank 0 is there twice"));
  EXPECT_THAT(error("YQ== 16000000\n"), HasSubstr("too large"));
  EXPECT_THAT(error("YQ==\n"), HasSubstr("line 1"));
}

TEST(RankFileTest, AnUnknownFamilyIsRefused) {
  const testing::TemporaryFile file("YQ== 0\nYg== 1\n");
  try {
    open_tokenizer(file.path());
    FAIL();
  } catch (const std::runtime_error& error) {
    EXPECT_THAT(error.what(), HasSubstr("2 ranks are those of no known encoding"));
  }
}

}  // namespace
}  // namespace batchmill
