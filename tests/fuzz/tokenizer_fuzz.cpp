// Texts, through tokenizers of every kind: the first byte says which, the rest is the text.
#include <array>
#include <memory>

#include "engine/tokenizer_file.h"
#include "engine/unicode.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/tokenizer_check.h"

namespace batchmill::fuzz {
namespace {

// Folders of tests/data/tokenizers; of the first, decoding gives the text back.
constexpr std::array kFolders = {"gpt-2",          "gpt-4o",       "smollm",      "dbrx",
                                 "deepseek-v3",    "qwen2",        "spaces-none", "spaces-always",
                                 "spaces-prepend", "spaces-first", "words",       "words-cased"};
constexpr std::size_t kNumExact = 5;

const Tokenizer& tokenizer(std::size_t index) {
  static std::array<std::unique_ptr<Tokenizer>, kFolders.size()> tokenizers;
  if (!tokenizers[index]) {
    tokenizers[index] =
        open_tokenizer(std::string(BATCHMILL_TEST_DATA) + "/tokenizers/" + kFolders[index]);
  }
  return *tokenizers[index];
}

}  // namespace

void run(std::string_view input) {
  if (input.empty()) return;
  const std::size_t index = static_cast<unsigned char>(input.front()) % kFolders.size();
  const std::string_view text = input.substr(1);
  check_tokenizer(tokenizer(index), text);
  if (index < kNumExact) {
    const std::vector<TokenId> ids = tokenizer(index).encode(text, false);
    require(tokenizer(index).decode(ids, true) == replace_invalid_utf8(text),
            "a text does not come back");
  }
}

}  // namespace batchmill::fuzz
