// Splits text into the pieces inside which byte-level BPE merges. Each model family has its own
// rules, written as hand-made scanners that run in linear time. Constant data; any thread.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace batchmill {

// What a family's tokenizers do beyond splitting, where the file does not say.
struct PreTokenizerHabits {
  bool whole_pieces_first =
      false;  // a piece that is an entry is that token, whatever merging makes
  bool normalizes = false;  // the text is brought to Unicode's form C first
};

struct PreTokenizer {
  std::string_view name;  // as in GGUF's tokenizer.ggml.pre

  // Appends the end offset of every piece of `text`, in order; the pieces cover it without gaps.
  // `text` must be valid UTF-8.
  void (*split)(std::string_view text, std::vector<std::size_t>* piece_ends);

  PreTokenizerHabits habits = {};
};

// Null if the name is not known.
const PreTokenizer* find_pre_tokenizer(std::string_view name);

// The names find_pre_tokenizer() knows, for error messages: "gpt-2, llama-bpe, …".
std::string known_pre_tokenizers();

}  // namespace batchmill
