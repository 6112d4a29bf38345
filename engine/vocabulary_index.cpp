#include "engine/vocabulary_index.h"

#include <algorithm>
#include <iterator>
#include <stdexcept>
#include <string>
#include <utility>

#include "engine/unicode.h"

namespace batchmill {
namespace {

constexpr std::size_t kMaxQuotedBytes = 60;
constexpr std::string_view kHexDigits = "0123456789abcdef";

// Tags that vocabularies hold as user-defined entries. Not <s>: some models end a text with it.
constexpr std::string_view kHtmlTags[] = {
    "a",     "b",  "blockquote", "body", "br",    "caption", "code", "div",    "em",  "footer",
    "h1",    "h2", "h3",         "h4",   "h5",    "h6",      "head", "html",   "i",   "iframe",
    "img",   "li", "ol",         "p",    "pre",   "span",    "sub",  "strong", "sup", "table",
    "tbody", "td", "tfoot",      "th",   "thead", "tr",      "u",    "ul",
};

bool looks_like_markup(std::string_view spelling) {
  if (spelling.size() < 2) return false;
  if (spelling.front() == '[' && spelling.back() == ']') return true;
  if (spelling.front() != '<' || spelling.back() != '>') return false;
  std::string_view name = spelling.substr(1, spelling.size() - 2);
  if (name.starts_with('/')) name.remove_prefix(1);
  return std::ranges::find(kHtmlTags, name) == std::end(kHtmlTags);
}

}  // namespace

std::string quoted(std::string_view text) {
  std::string out = "\"";
  std::size_t position = 0;
  while (position < text.size() && position < kMaxQuotedBytes) {
    const Utf8Part part = utf8_part_at(text, position);
    const auto byte = static_cast<unsigned char>(text[position]);
    const bool prints = part.state == Utf8Part::State::kCharacter && byte >= 0x20 && byte != 0x7F;
    if (prints) {
      out += text.substr(position, part.num_bytes);
      position += part.num_bytes;
    } else {
      out += {'\\', 'x', kHexDigits[byte >> 4], kHexDigits[byte & 0xF]};
      ++position;
    }
  }
  return out + (position < text.size() ? "…\"" : "\"");
}

VocabularyIndex::VocabularyIndex(const Vocabulary* vocabulary) : vocabulary_(vocabulary) {
  const std::vector<std::string>& tokens = vocabulary->tokens;
  if (tokens.empty()) throw std::runtime_error("vocabulary: it has no tokens");
  if (tokens.size() > kMaxTokens) {
    throw std::runtime_error("vocabulary: " + std::to_string(tokens.size()) +
                             " tokens are more than the " + std::to_string(kMaxTokens) +
                             " that are supported");
  }
  check_kinds();
  check_ids();
  ids_.reserve(tokens.size());
  for (TokenId id = 0; id < size(); ++id) {
    if (tokens[id].empty()) continue;  // stands for no text and is never looked up
    const auto [other, is_new] = ids_.try_emplace(tokens[id], id);
    if (!is_new) {
      throw std::runtime_error("vocabulary: tokens " + std::to_string(other->second) + " and " +
                               std::to_string(id) + " are both " + quoted(tokens[id]));
    }
  }
}

void VocabularyIndex::check_kinds() const {
  const std::vector<TokenKind>& kinds = vocabulary_->kinds;
  if (kinds.empty()) return;
  if (kinds.size() != vocabulary_->tokens.size()) {
    throw std::runtime_error("vocabulary: " + std::to_string(kinds.size()) + " token kinds for " +
                             std::to_string(vocabulary_->tokens.size()) + " tokens");
  }
  for (std::size_t id = 0; id < kinds.size(); ++id) {
    if (kinds[id] < TokenKind::kNormal || kinds[id] > TokenKind::kByte) {
      throw std::runtime_error("vocabulary: token " + std::to_string(id) + " is of kind " +
                               std::to_string(static_cast<int>(kinds[id])) +
                               ", which is not one of 1 to 6");
    }
  }
}

void VocabularyIndex::check_ids() const {
  const std::pair<const char*, TokenId> named[] = {{"bos", vocabulary_->bos_token},
                                                   {"eos", vocabulary_->eos_token},
                                                   {"unknown", vocabulary_->unknown_token},
                                                   {"padding", vocabulary_->padding_token}};
  for (const auto& [name, id] : named) {
    if (id != kNoToken && !contains(id)) {
      throw std::runtime_error(std::string("vocabulary: the ") + name + " token is " +
                               std::to_string(id) + ", but there are only " +
                               std::to_string(size()) + " tokens");
    }
  }
}

TokenId VocabularyIndex::find(std::string_view spelling) const {
  const auto found = ids_.find(spelling);
  return found == ids_.end() ? kNoToken : found->second;
}

TokenKind VocabularyIndex::kind(TokenId id) const {
  if (vocabulary_->kinds.empty()) return TokenKind::kNormal;
  const TokenKind kind = vocabulary_->kinds[id];
  if ((kind == TokenKind::kUserDefined || kind == TokenKind::kUnknown) &&
      spelling(id) == "[PAD" + std::to_string(id) + "]") {
    return TokenKind::kUnused;
  }
  return kind;
}

bool VocabularyIndex::is_text(TokenId id) const {
  switch (kind(id)) {
    case TokenKind::kNormal:
    case TokenKind::kByte:
      return true;
    case TokenKind::kUserDefined:
      return !looks_like_markup(spelling(id));
    default:
      return false;
  }
}

}  // namespace batchmill
