// Recognises the steps of a Hugging Face tokenizer.json (normalizer, pre_tokenizer, decoder) by
// their content, as what the tokenizers here do. Pure; any thread.
#pragma once

#include "engine/json_place.h"
#include "engine/vocabulary.h"

namespace batchmill {

// Each sets what the steps of `tokenizer` (the whole file) say about a kind of tokenizer; `model`
// is set by the caller. Each throws std::runtime_error naming the step that is not known.

// Byte-level BPE: pre_tokenizer, normalizes.
void read_byte_level_steps(const JsonPlace& tokenizer, Vocabulary* vocabulary);

// SentencePiece's BPE: space_prefix.
void read_sentencepiece_steps(const JsonPlace& tokenizer, Vocabulary* vocabulary);

// WordPiece: word_piece.
void read_wordpiece_steps(const JsonPlace& tokenizer, Vocabulary* vocabulary);

// Whether the pre-tokenizer turns text into the byte alphabet.
bool is_byte_level(const JsonPlace& tokenizer);

// bos_token, eos_token, add_bos and add_eos as the post_processor sets them, if it does.
void read_post_processor(const JsonPlace& tokenizer, Vocabulary* vocabulary);

}  // namespace batchmill
