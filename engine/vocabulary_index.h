// Checks a vocabulary's table of entries and finds entries by spelling. Every kind of tokenizer
// owns one. Immutable; any thread.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>

#include "engine/tokenizer.h"

namespace batchmill {

// `text` in quotes for an error's one line: long texts are cut, bytes that do not print are \xNN.
std::string quoted(std::string_view text);

class VocabularyIndex {
 public:
  // More entries than any model has; ids must also fit 3 bytes.
  static constexpr std::size_t kMaxTokens = (1 << 24) - 2;

  // `vocabulary` must outlive the index. Throws std::runtime_error naming the entry that is broken.
  explicit VocabularyIndex(const Vocabulary* vocabulary);

  // The id of the entry spelled exactly so, or kNoToken.
  TokenId find(std::string_view spelling) const;

  std::int32_t size() const { return static_cast<std::int32_t>(vocabulary_->tokens.size()); }
  bool contains(TokenId id) const { return id >= 0 && id < size(); }
  std::string_view spelling(TokenId id) const { return vocabulary_->tokens[id]; }

  // kUnused for placeholders, which converters to GGUF write as user-defined or unknown in some
  // files: the entries "[PAD123]" that only fill up the ids a model's matrices have and its
  // tokenizer lacks.
  TokenKind kind(TokenId id) const;

  // Whether plain text may become this token. Not control, unknown and unused entries, nor
  // user-defined ones that look like markup of prompts, e.g. "<tool_call>"; tags of HTML do not.
  bool is_text(TokenId id) const;

 private:
  void check_kinds() const;
  void check_ids() const;

  const Vocabulary* vocabulary_;
  std::unordered_map<std::string_view, TokenId> ids_;
};

}  // namespace batchmill
