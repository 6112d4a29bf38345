#include "engine/bpe.h"

#include <stdexcept>

#include "engine/byte_alphabet.h"

namespace batchmill {
namespace {

// Entries longer than this are left to merging: checking them at construction would take long.
constexpr std::size_t kMaxWholePieceBytes = 256;

}  // namespace

Bpe::Bpe(const Vocabulary& vocabulary, const VocabularyIndex& index, bool whole_pieces_first)
    : merges_(vocabulary, index), pieces_(vocabulary.tokens.size()) {
  read_bytes(index);
  read_pieces(index, whole_pieces_first);
}

void Bpe::read_bytes(const VocabularyIndex& index) {
  bool any = false;
  for (int byte = 0; byte < 256; ++byte) {
    const char value = static_cast<char>(byte);
    const TokenId id = index.find(spelling_of_bytes({&value, 1}));
    const bool is_byte = id != kNoToken && (index.kind(id) == TokenKind::kNormal ||
                                            index.kind(id) == TokenKind::kByte);
    byte_tokens_[byte] = is_byte ? id : kNoToken;
    any = any || is_byte;
  }
  if (!any) throw std::runtime_error("vocabulary: it has no token for any single byte");
}

void Bpe::read_pieces(const VocabularyIndex& index, bool whole_pieces_first) {
  MergeScratch scratch;
  for (TokenId id = 0; id < index.size(); ++id) {
    if (index.kind(id) != TokenKind::kNormal) continue;
    const auto bytes = bytes_of_spelling(index.spelling(id));
    if (!bytes || bytes->empty() || bytes->size() > kMaxWholePieceBytes) continue;
    if (!whole_pieces_first) {
      merge(*bytes, &scratch);
      if (scratch.ids.size() != 1 || scratch.ids[0] != id) continue;
    }
    pieces_.insert(*bytes, id);
  }
}

void Bpe::encode(std::string_view piece, MergeScratch* scratch, std::vector<TokenId>* ids) const {
  if (piece.empty()) return;
  const TokenId whole = pieces_.find(piece);
  if (whole != kNoToken) {
    ids->push_back(whole);
    return;
  }
  merge(piece, scratch);
  ids->insert(ids->end(), scratch->ids.begin(), scratch->ids.end());
}

void Bpe::merge(std::string_view piece, MergeScratch* scratch) const {
  scratch->ids.clear();
  for (const char byte : piece) {
    const TokenId id = byte_tokens_[static_cast<unsigned char>(byte)];
    if (id != kNoToken) scratch->ids.push_back(id);
  }
  merge_symbols(merges_, scratch);
}

}  // namespace batchmill
