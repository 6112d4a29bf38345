// The parts of a model's files that define its tokenizer. Plain data: readers fill it
// (gguf_vocabulary, hf_vocabulary, rank_file), Tokenizer::create checks and takes it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/types.h"

namespace batchmill {

// What a vocabulary entry is. Values are GGUF's tokenizer.ggml.token_type.
enum class TokenKind : std::uint8_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6,
};

// Which neighbours of a BPE join, and which first.
enum class MergeOrder : std::uint8_t {
  kListed,  // those in `merges`, in its order
  kTokenIds,  // any whose join is an entry, the lowest id first (tiktoken's rank files)
  kScores,  // any whose join is an entry, the highest score first (SentencePiece)
};

// Where SentencePiece puts a space in front of a text that has none.
enum class SpacePrefix : std::uint8_t {
  kNone,
  kAlways,  // of every stretch between special tokens, even if it begins with a space
  kIfMissing,  // of every stretch that does not begin with a space
  kIfMissingAtStart,  // of the first stretch only, if it begins the text
};

// What WordPiece does to a text before it looks up words.
struct WordPieceRules {
  bool clean_text = true;  // control characters go, white space becomes U+0020
  bool separate_han = true;  // each Han character is a word
  bool strip_accents = true;
  bool lowercase = true;
  bool clean_up_spaces = true;  // decoding puts no space before punctuation
  std::int32_t max_word_chars = 100;  // longer words are unknown
};

struct Vocabulary {
  // "gpt2": byte-level BPE; "llama": SentencePiece's BPE; "bert": WordPiece, whose entries inside
  // words begin with "##".
  std::string model;
  std::string pre_tokenizer;  // "smollm", "gpt-2", "llama-bpe", …; of "gpt2" only
  std::vector<std::string> tokens;  // [vocab], in the model's own alphabet
  std::vector<TokenKind> kinds;  // [vocab], or empty: all normal
  std::vector<float> scores;  // [vocab] with kScores, else empty
  std::vector<std::string> merges;  // with kListed: "left right", best first
  MergeOrder merge_order = MergeOrder::kListed;
  // A piece that is an entry is that token, whatever merging makes of it; and the text is brought
  // to Unicode's form C first. Absent: as models with this pre-tokenizer do.
  std::optional<bool> whole_pieces_first;
  std::optional<bool> normalizes;
  SpacePrefix space_prefix = SpacePrefix::kNone;
  WordPieceRules word_piece;
  // Special tokens that take the white space before and after them along.
  std::vector<TokenId> left_stripping;
  std::vector<TokenId> right_stripping;
  TokenId bos_token = kNoToken;  // "bert": [CLS]
  TokenId eos_token = kNoToken;  // "bert": [SEP]
  TokenId unknown_token = kNoToken;
  TokenId padding_token = kNoToken;
  bool add_bos = false;
  bool add_eos = false;
};

}  // namespace batchmill
