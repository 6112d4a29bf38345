#include "engine/wordpiece_tokenizer.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "engine/bert_normalizer.h"

namespace batchmill {
namespace {

constexpr std::string_view kInsideWord = "##";

bool is_longer_than(std::string_view word, std::int32_t max_chars) {
  if (word.size() <= static_cast<std::size_t>(max_chars)) return false;
  const auto num_chars =
      std::ranges::count_if(word, [](char byte) { return (byte & 0xC0) != 0x80; });
  return num_chars > max_chars;
}

// English spelling as the reference's decoder does it.
void clean_up_spaces(std::string* text) {
  constexpr std::pair<std::string_view, std::string_view> kReplacements[] = {
      {" .", "."},   {" ?", "?"},     {" !", "!"},     {" ,", ","},
      {" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},   {" do not", " don't"},
      {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"},
  };
  for (const auto& [from, to] : kReplacements) {
    for (std::size_t at = text->find(from); at != std::string::npos;
         at = text->find(from, at + to.size())) {
      text->replace(at, from.size(), to);
    }
  }
}

}  // namespace

WordPieceTokenizer::WordPieceTokenizer(Vocabulary given)
    : VocabularyTokenizer(std::move(given)), words_(vocabulary().tokens.size()) {
  if (vocabulary().unknown_token == kNoToken) {
    throw std::runtime_error("vocabulary: WordPiece needs an unknown token");
  }
  for (TokenId id = 0; id < index().size(); ++id) {
    std::string_view spelling = index().spelling(id);
    if (spelling.empty() || !index().is_text(id)) continue;
    if (spelling.starts_with(kInsideWord) && spelling != kInsideWord) {
      rests_.add(spelling.substr(kInsideWord.size()), id);
      continue;
    }
    words_.insert(spelling, id);
    starts_.add(spelling, id);
  }
}

void WordPieceTokenizer::encode_word(std::string_view word, std::vector<TokenId>* ids) const {
  const WordPieceRules& rules = vocabulary().word_piece;
  if (is_longer_than(word, rules.max_word_chars)) {
    ids->push_back(vocabulary().unknown_token);
    return;
  }
  const TokenId whole = words_.find(word);
  if (whole != kNoToken) {
    ids->push_back(whole);
    return;
  }
  const std::size_t size = ids->size();
  const WordTrie* trie = &starts_;
  while (!word.empty()) {
    const WordTrie::Match match = trie->longest_start(word);
    if (match.num_bytes == 0) {  // a part is unknown, so the word is
      ids->resize(size);
      ids->push_back(vocabulary().unknown_token);
      return;
    }
    ids->push_back(match.id);
    word.remove_prefix(match.num_bytes);
    trie = &rests_;
  }
}

void WordPieceTokenizer::encode_stretch(std::string_view stretch, bool /*begins_text*/,
                                        Scratch* scratch, std::vector<TokenId>* ids) const {
  split_bert_words(stretch, vocabulary().word_piece, &scratch->text, &scratch->piece_ends,
                   &scratch->code_points);
  std::size_t begin = 0;
  for (const std::size_t end : scratch->piece_ends) {
    encode_word(std::string_view(scratch->text).substr(begin, end - begin), ids);
    begin = end;
  }
}

void WordPieceTokenizer::append_spelling(std::string_view spelling, TokenKind /*kind*/,
                                         bool starts_text, std::string* bytes) const {
  std::string text(spelling);
  if (!starts_text) {
    if (spelling.starts_with(kInsideWord)) {
      text.erase(0, kInsideWord.size());
    } else {
      text.insert(0, 1, ' ');
    }
  }
  if (vocabulary().word_piece.clean_up_spaces && text.find(' ') != std::string::npos) {
    clean_up_spaces(&text);
  }
  *bytes += text;
}

}  // namespace batchmill
