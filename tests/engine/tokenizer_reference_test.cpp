// Holds the tokenizers against the answers of the reference implementations, case by case.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "engine/gguf_vocabulary.h"
#include "engine/tokenizer.h"
#include "tests/support/reference_data.h"

namespace batchmill {
namespace {

using nlohmann::json;

std::vector<json> read_lines(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::vector<json> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(json::parse(line));
  return lines;
}

std::string bytes_of_hex(const std::string& hex) {
  std::string bytes;
  for (std::size_t i = 0; i < hex.size(); i += 2) {
    bytes.push_back(static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  }
  return bytes;
}

// A tokenizer by the name it has in the reference data.
class TokenizerReferenceTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const std::string name = GetParam();
    const bool is_model = name == "smollm";
    const auto path =
        is_model ? testing::model_file() : testing::vocabulary_file("ggml-vocab-" + name + ".gguf");
    if (path.empty()) {
      GTEST_SKIP() << "skipped: no vocabulary for " << name << " (set "
                   << (is_model ? "BATCHMILL_MODEL" : "BATCHMILL_VOCABS") << ")";
    }
    if (testing::reference_file("tokenizers").empty()) {
      GTEST_SKIP() << "skipped: no reference data (set BATCHMILL_REFERENCE)";
    }
    auto vocabulary = read_vocabulary(GgufFile(path.string()));
    ASSERT_TRUE(vocabulary.has_value());
    tokenizer_ = Tokenizer::create(std::move(*vocabulary));
  }

  // Lines of a file that all tokenizers share, only this tokenizer's.
  std::vector<json> own_lines(const std::string& file) const {
    std::vector<json> lines = read_lines(testing::reference_file("tokenizers/" + file));
    std::erase_if(lines, [](const json& line) { return line["tokenizer"] != GetParam(); });
    return lines;
  }

  std::unique_ptr<Tokenizer> tokenizer_;
};

TEST_P(TokenizerReferenceTest, GivesTheExpectedIdsAndText) {
  const std::string name = GetParam();
  std::vector<json> cases = read_lines(testing::reference_file("tokenizers/" + name + ".jsonl"));
  EXPECT_EQ(cases.size(), 300u);
  for (json& line : read_lines(testing::reference_file("tokenizers/" + name + ".disagree.jsonl"))) {
    cases.push_back(std::move(line));
  }
  for (const json& line : cases) {
    const auto text = line["text"].get<std::string>();
    const auto ids = line["ids"].get<std::vector<TokenId>>();
    EXPECT_EQ(tokenizer_->encode(text, line.value("special", false)), ids) << line.dump();
    EXPECT_EQ(tokenizer_->decode(ids, true), line["decoded"].get<std::string>()) << line.dump();
  }
}

TEST_P(TokenizerReferenceTest, StreamsTheExpectedChunks) {
  const std::vector<json> cases = own_lines("streaming.jsonl");
  EXPECT_FALSE(cases.empty());
  for (const json& line : cases) {
    Detokenizer detokenizer(tokenizer_.get(), true);
    std::vector<std::string> chunks;
    for (const TokenId id : line["ids"]) chunks.push_back(detokenizer.append(id));
    EXPECT_EQ(chunks, line["chunks"].get<std::vector<std::string>>()) << line.dump();
    EXPECT_EQ(detokenizer.finish(), line["at_end"].get<std::string>()) << line.dump();
  }
}

TEST_P(TokenizerReferenceTest, ReplacesInvalidUtf8BeforeAnythingElse) {
  const std::vector<json> cases = own_lines("invalid_utf8.jsonl");
  EXPECT_FALSE(cases.empty());
  for (const json& line : cases) {
    const std::string bytes = bytes_of_hex(line["bytes_hex"]);
    EXPECT_EQ(tokenizer_->encode(bytes, false), line["ids"].get<std::vector<TokenId>>())
        << line.dump();
  }
}

INSTANTIATE_TEST_SUITE_P(All, TokenizerReferenceTest,
                         ::testing::Values("smollm", "gpt-2", "llama-bpe"), [](const auto& test) {
                           std::string name = test.param;
                           std::erase(name, '-');
                           return name;
                         });

}  // namespace
}  // namespace batchmill
