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
#include "engine/vocabulary.h"

namespace batchmill {

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

  // Appends what `id` adds to a text. `starts_text`: no token that shows stands before it (some
  // kinds leave out a space there). `with_special`: control tokens show their text. False if the
  // token does not show: a control token else, an unused entry, an id outside the vocabulary.
  virtual bool append_bytes(TokenId id, bool with_special, bool starts_text,
                            std::string* bytes) const = 0;

  // The bytes that one token adds inside a text, e.g. " the"; "" if it does not show.
  std::string token_bytes(TokenId id, bool with_special) const;

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
  // `continues_text`: the sequence follows another text, as an answer follows its prompt, so the
  // first token's space counts. Else all chunks joined are decode() of the ids.
  Detokenizer(const Tokenizer* tokenizer, bool with_special, bool continues_text = false);

  // The text that is complete once `id` follows what was appended before: the longest prefix of
  // complete characters; each maximal invalid part becomes one U+FFFD; a tail that may still become
  // a character is kept.
  std::string append(TokenId id);
  // The same, written behind `text`.
  void append(TokenId id, std::string* text);

  // What is left when the sequence ends: "" or U+FFFD for an unfinished character.
  std::string finish();

 private:
  const Tokenizer* tokenizer_;
  bool with_special_;
  bool starts_text_;
  std::string pending_;
};

}  // namespace batchmill
