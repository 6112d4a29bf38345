#include "engine/sentencepiece_tokenizer.h"

#include <utility>

namespace batchmill {

SentencePieceTokenizer::SentencePieceTokenizer(Vocabulary given)
    : VocabularyTokenizer(std::move(given)), pieces_(vocabulary(), index()) {}

bool SentencePieceTokenizer::needs_prefix(std::string_view stretch, bool begins_text) const {
  const bool has_space = stretch.starts_with(' ') || stretch.starts_with(kSpaceMark);
  switch (vocabulary().space_prefix) {
    case SpacePrefix::kNone:
      return false;
    case SpacePrefix::kAlways:
      return true;
    case SpacePrefix::kIfMissing:
      return !has_space;
    case SpacePrefix::kIfMissingAtStart:
      return begins_text && !has_space;
  }
  return false;
}

void SentencePieceTokenizer::encode_stretch(std::string_view stretch, bool begins_text,
                                            Scratch* scratch, std::vector<TokenId>* ids) const {
  std::string& text = scratch->text;
  text.clear();
  text.reserve(stretch.size() + stretch.size() / 2);
  if (needs_prefix(stretch, begins_text)) text += kSpaceMark;
  while (true) {
    const std::size_t space = stretch.find(' ');
    text += stretch.substr(0, space);
    if (space == std::string_view::npos) break;
    text += kSpaceMark;
    stretch.remove_prefix(space + 1);
  }
  pieces_.encode(text, &scratch->merge, ids);
}

void SentencePieceTokenizer::append_spelling(std::string_view spelling, TokenKind kind,
                                             bool starts_text, std::string* bytes) const {
  if (kind == TokenKind::kByte) {
    const int byte = byte_of_spelling(spelling);
    if (byte < 0 ||
        (starts_text && byte == ' ' && vocabulary().space_prefix != SpacePrefix::kNone)) {
      return;
    }
    bytes->push_back(static_cast<char>(byte));
    return;
  }
  // The space that encoding put in front.
  if (starts_text && vocabulary().space_prefix != SpacePrefix::kNone) {
    if (spelling.starts_with(kSpaceMark)) {
      spelling.remove_prefix(kSpaceMark.size());
    } else if (spelling.starts_with(' ')) {
      spelling.remove_prefix(1);
    }
  }
  while (true) {
    const std::size_t mark = spelling.find(kSpaceMark);
    *bytes += spelling.substr(0, mark);
    if (mark == std::string_view::npos) break;
    bytes->push_back(' ');
    spelling.remove_prefix(mark + kSpaceMark.size());
  }
}

}  // namespace batchmill
