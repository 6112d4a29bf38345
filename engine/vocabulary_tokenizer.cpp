#include "engine/vocabulary_tokenizer.h"

#include <unordered_set>
#include <utility>

#include "engine/unicode.h"
#include "engine/utf8_repair.h"

namespace batchmill {
namespace {

bool is_space_at(std::string_view text, std::size_t position) {
  return char_class(utf8_char_at(text, position).code_point) == CharClass::kSpace;
}

std::size_t skip_spaces(std::string_view text, std::size_t position) {
  while (position < text.size() && is_space_at(text, position)) {
    position += utf8_char_at(text, position).num_bytes;
  }
  return position;
}

std::string_view without_last_spaces(std::string_view text) {
  while (!text.empty()) {
    std::size_t last = text.size() - 1;
    while ((text[last] & 0xC0) == 0x80) --last;
    if (!is_space_at(text, last)) break;
    text = text.substr(0, last);
  }
  return text;
}

}  // namespace

VocabularyTokenizer::VocabularyTokenizer(Vocabulary vocabulary)
    : vocabulary_(std::move(vocabulary)), index_(&vocabulary_) {
  const std::unordered_set<TokenId> left(vocabulary_.left_stripping.begin(),
                                         vocabulary_.left_stripping.end());
  const std::unordered_set<TokenId> right(vocabulary_.right_stripping.begin(),
                                          vocabulary_.right_stripping.end());
  for (TokenId id = 0; id < index_.size(); ++id) {
    const std::string_view text = index_.spelling(id);
    if (text.empty()) continue;
    const TokenKind kind = index_.kind(id);
    const bool user_defined = kind == TokenKind::kUserDefined;
    if (!user_defined && kind != TokenKind::kControl && kind != TokenKind::kUnknown) continue;
    const SpecialTokens::Traits traits{
        .is_text = index_.is_text(id),
        .strips_left = left.contains(id),
        .strips_right = right.contains(id),
    };
    if (user_defined) always_special_.add(text, id, traits);
    special_if_parsed_.add(text, id, traits);
  }
}

std::vector<TokenId> VocabularyTokenizer::encode(std::string_view text, bool parse_special) const {
  const SpecialTokens& special = parse_special ? special_if_parsed_ : always_special_;
  if (valid_utf8_prefix(text) == text.size()) return encode_valid(text, special, {});
  return encode_valid(replace_invalid_utf8(text), special, {});
}

std::vector<TokenId> VocabularyTokenizer::encode(const MarkedText& text) const {
  if (valid_utf8_prefix(text.text) == text.text.size()) {
    return encode_valid(text.text, special_if_parsed_, text.marked);
  }
  const MarkedText repaired = replace_invalid_utf8(text);
  return encode_valid(repaired.text, special_if_parsed_, repaired.marked);
}

std::vector<TokenId> VocabularyTokenizer::encode_valid(std::string_view text,
                                                       const SpecialTokens& special,
                                                       std::span<const ByteSpan> marked) const {
  std::vector<TokenId> ids;
  ids.reserve(text.size() / 3);  // English prose has about 4.5 bytes a token
  Scratch scratch;
  std::size_t begin = 0;
  while (begin < text.size()) {
    while (!marked.empty() && marked.front().end <= begin) marked = marked.subspan(1);
    const auto match = special.find(text, begin, marked);
    const std::size_t end = match ? match->begin : text.size();
    std::string_view stretch = text.substr(begin, end - begin);
    if (match && match->traits.strips_left) stretch = without_last_spaces(stretch);
    if (!stretch.empty()) encode_stretch(stretch, begin == 0, &scratch, &ids);
    if (!match) break;
    ids.push_back(match->id);
    begin = match->traits.strips_right ? skip_spaces(text, match->end) : match->end;
  }
  return ids;
}

bool VocabularyTokenizer::append_bytes(TokenId id, bool with_special, bool starts_text,
                                       std::string* bytes) const {
  if (!index_.contains(id)) return false;
  const TokenKind kind = index_.kind(id);
  if (kind == TokenKind::kUnused) return false;
  if (!with_special && (kind == TokenKind::kControl || kind == TokenKind::kUnknown)) return false;
  append_spelling(index_.spelling(id), kind, starts_text, bytes);
  return true;
}

std::string_view VocabularyTokenizer::piece(TokenId id) const {
  return index_.contains(id) ? index_.spelling(id) : std::string_view();
}

}  // namespace batchmill
