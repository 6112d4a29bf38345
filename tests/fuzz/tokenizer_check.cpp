#include "tests/fuzz/tokenizer_check.h"

#include <algorithm>
#include <string>

#include "engine/unicode.h"
#include "tests/fuzz/fuzz_target.h"

namespace batchmill::fuzz {
namespace {

TokenKind kind_of(const Vocabulary& vocabulary, TokenId id) {
  return vocabulary.kinds.empty() ? TokenKind::kNormal
                                  : vocabulary.kinds.at(static_cast<std::size_t>(id));
}

void check_decoding(const Tokenizer& tokenizer, const std::vector<TokenId>& ids,
                    bool with_special) {
  const std::string whole = tokenizer.decode(ids, with_special);
  require(replace_invalid_utf8(whole) == whole, "decoded text is not UTF-8");
  Detokenizer detokenizer(&tokenizer, with_special);
  std::string joined;
  for (const TokenId id : ids) joined += detokenizer.append(id);
  joined += detokenizer.finish();
  require(joined == whole, "decoding token by token differs");
}

}  // namespace

void check_tokenizer(const Tokenizer& tokenizer, std::string_view text) {
  const Vocabulary& vocabulary = tokenizer.vocabulary();
  for (const bool parse_special : {false, true}) {
    const std::vector<TokenId> ids = tokenizer.encode(text, parse_special);
    for (const TokenId id : ids) {
      require(id >= 0 && id < tokenizer.vocab_size(), "an id is outside the vocabulary");
      require(parse_special || kind_of(vocabulary, id) != TokenKind::kControl ||
                  id == vocabulary.unknown_token,
              "a text became a control token");
    }
    check_decoding(tokenizer, ids, parse_special);
  }
  // Marked text is text, whatever is written in it.
  const MarkedText marked{std::string(text), {{0, text.size()}}};
  if (!text.empty()) {
    for (const TokenId id : tokenizer.encode(marked)) {
      require(kind_of(vocabulary, id) != TokenKind::kControl || id == vocabulary.unknown_token,
              "a marked text became a control token");
    }
  }
  // Ids that no text gave.
  std::vector<TokenId> any = {-1, tokenizer.vocab_size()};
  for (const char c : text) any.push_back(static_cast<unsigned char>(c));
  check_decoding(tokenizer, any, false);
  check_decoding(tokenizer, any, true);
}

}  // namespace batchmill::fuzz
