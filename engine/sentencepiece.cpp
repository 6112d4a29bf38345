#include "engine/sentencepiece.h"

#include <charconv>

#include "engine/unicode.h"

namespace batchmill {
namespace {

// Entries longer than this are left to merging: checking them at construction would take long.
constexpr std::size_t kMaxWordBytes = 256;

}  // namespace

int byte_of_spelling(std::string_view spelling) {
  if (spelling.size() != 6 || !spelling.starts_with("<0x") || spelling[5] != '>') return -1;
  int byte = -1;
  const auto [end, error] = std::from_chars(spelling.data() + 3, spelling.data() + 5, byte, 16);
  return error == std::errc() && end == spelling.data() + 5 ? byte : -1;
}

SentencePiece::SentencePiece(const Vocabulary& vocabulary, const VocabularyIndex& index)
    : unknown_token_(vocabulary.unknown_token),
      chars_(vocabulary.tokens.size()),
      words_(vocabulary.tokens.size()),
      merges_(vocabulary, index) {
  read_entries(index);
  read_joins(index);
  read_words(index);
}

SentencePiece::ClassifiedChar SentencePiece::char_at(std::string_view text, std::size_t position) {
  const auto byte = static_cast<unsigned char>(text[position]);
  if (byte < 0x80) return {byte, 1};
  const std::size_t num_bytes = utf8_char_at(text, position).num_bytes;
  const bool is_space = text.substr(position, num_bytes) == kSpaceMark;
  return {is_space ? kSpaceClass : kOtherClass, num_bytes};
}

void SentencePiece::read_entries(const VocabularyIndex& index) {
  byte_tokens_.fill(kNoToken);
  for (TokenId id = 0; id < index.size(); ++id) {
    const std::string_view spelling = index.spelling(id);
    if (index.kind(id) == TokenKind::kByte) {
      const int byte = byte_of_spelling(spelling);
      if (byte >= 0) byte_tokens_[byte] = id;
    } else if (!spelling.empty() && index.is_text(id)) {
      const Utf8Part part = utf8_part_at(spelling, 0);
      const bool is_char = part.state == Utf8Part::State::kCharacter;
      if (is_char && part.num_bytes == spelling.size()) chars_.insert(spelling, id);
    }
  }
}

void SentencePiece::read_joins(const VocabularyIndex& index) {
  merges_.for_each_joined([&](TokenId id) {
    const std::string_view spelling = index.spelling(id);
    if (valid_utf8_prefix(spelling) != spelling.size()) return;  // joined by no text
    ClassifiedChar previous = char_at(spelling, 0);
    for (std::size_t position = previous.num_bytes; position < spelling.size();) {
      const ClassifiedChar next = char_at(spelling, position);
      joins_[previous.char_class][next.char_class] = true;
      previous = next;
      position += next.num_bytes;
    }
  });
}

void SentencePiece::read_words(const VocabularyIndex& index) {
  MergeScratch scratch;
  for (TokenId id = 0; id < index.size(); ++id) {
    const std::string_view spelling = index.spelling(id);
    if (index.kind(id) == TokenKind::kByte || !index.is_text(id)) continue;
    if (spelling.empty() || spelling.size() > kMaxWordBytes) continue;
    if (valid_utf8_prefix(spelling) != spelling.size()) continue;
    merge(spelling, &scratch);
    if (scratch.ids.size() == 1 && scratch.ids[0] == id) words_.insert(spelling, id);
  }
}

std::size_t SentencePiece::word_end(std::string_view text, std::size_t begin) const {
  ClassifiedChar previous = char_at(text, begin);
  std::size_t end = begin + previous.num_bytes;
  while (end < text.size()) {
    const ClassifiedChar next = char_at(text, end);
    if (!joins_[previous.char_class][next.char_class]) break;
    previous = next;
    end += next.num_bytes;
  }
  return end;
}

void SentencePiece::encode(std::string_view text, MergeScratch* scratch,
                           std::vector<TokenId>* ids) const {
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = word_end(text, begin);
    const std::string_view word = text.substr(begin, end - begin);
    begin = end;
    const TokenId whole = words_.find(word);
    if (whole != kNoToken) {
      ids->push_back(whole);
      continue;
    }
    merge(word, scratch);
    for (const TokenId id : scratch->ids) {
      // A run of unknown characters is one token.
      if (id == unknown_token_ && !ids->empty() && ids->back() == id) continue;
      ids->push_back(id);
    }
  }
}

void SentencePiece::merge(std::string_view word, MergeScratch* scratch) const {
  std::vector<TokenId>& symbols = scratch->ids;
  symbols.clear();
  for (std::size_t position = 0; position < word.size();) {
    const std::size_t num_bytes = utf8_char_at(word, position).num_bytes;
    const std::string_view character = word.substr(position, num_bytes);
    position += num_bytes;
    const TokenId id = chars_.find(character);
    if (id != kNoToken) {
      symbols.push_back(id);
      continue;
    }
    const std::size_t size = symbols.size();
    for (const char byte : character) {
      const TokenId byte_id = byte_tokens_[static_cast<unsigned char>(byte)];
      if (byte_id == kNoToken) {
        symbols.resize(size);
        if (unknown_token_ != kNoToken) symbols.push_back(unknown_token_);
        break;
      }
      symbols.push_back(byte_id);
    }
  }
  merge_symbols(merges_, scratch);
}

}  // namespace batchmill
