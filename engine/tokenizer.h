// Text to token ids and back, for one model's vocabulary. Immutable after construction and safe to
// use from several threads.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
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

// The parts of a model file that define a tokenizer, as they are in the file.
struct Vocabulary {
  std::string model;  // "gpt2": byte-level BPE
  std::string pre_tokenizer;  // "smollm", "gpt-2", "llama-bpe", …
  std::vector<std::string> tokens;  // [vocab], in the model's own alphabet
  std::vector<TokenKind> kinds;  // [vocab], or empty: all normal
  std::vector<std::string> merges;  // "left right", best first
  TokenId bos_token = kNoToken;
  TokenId eos_token = kNoToken;
  TokenId unknown_token = kNoToken;
  TokenId padding_token = kNoToken;
  bool add_bos = false;
  bool add_eos = false;
};

// Half-open byte range of a text in which special tokens are never recognised.
struct ByteSpan {
  std::size_t begin = 0;
  std::size_t end = 0;
  bool operator==(const ByteSpan&) const = default;
};

// A prompt's text with the spans that came from a message: sorted, disjoint.
struct MarkedText {
  std::string text;
  std::vector<ByteSpan> marked;
};

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // Throws std::runtime_error naming the model or pre-tokenizer that is not supported, or the entry
  // that is broken.
  static std::unique_ptr<Tokenizer> create(Vocabulary vocabulary);

  virtual std::int32_t vocab_size() const = 0;
  virtual const Vocabulary& vocabulary() const = 0;

  // Ids of `text`; bytes that are not UTF-8 are read as U+FFFD, one per maximal invalid part. No
  // BOS or EOS is added. With `parse_special`, control tokens written in the text become that
  // token; user-defined tokens always do.
  virtual std::vector<TokenId> encode(std::string_view text, bool parse_special) const = 0;

  // As encode(text, true), but no special token is recognised where it would touch a marked byte.
  virtual std::vector<TokenId> encode(const MarkedText& text) const = 0;

  // The bytes that one token stands for. `with_special`: control tokens give their text, else "".
  // Unused entries and ids outside the vocabulary stand for nothing.
  virtual std::string token_bytes(TokenId id, bool with_special) const = 0;

  // Text of ids, valid UTF-8 (invalid parts become U+FFFD).
  std::string decode(std::span<const TokenId> ids, bool with_special) const;

  // The vocabulary's own spelling of a token, e.g. "Ġthe", for showing to people; "" outside it.
  virtual std::string_view piece(TokenId id) const = 0;

  // The id whose piece is exactly `piece`, or kNoToken.
  virtual TokenId find(std::string_view piece) const = 0;
};

// Decodes one sequence token by token and never splits a character.
class Detokenizer {
 public:
  Detokenizer(const Tokenizer* tokenizer, bool with_special);

  // The text that is complete once `id` follows what was appended before: the longest prefix of
  // complete characters; each maximal invalid part becomes one U+FFFD; a tail that may still become
  // a character is kept.
  std::string append(TokenId id);

  // What is left when the sequence ends: "" or U+FFFD for an unfinished character.
  std::string finish();

 private:
  const Tokenizer* tokenizer_;
  bool with_special_;
  std::string pending_;
};

}  // namespace batchmill
