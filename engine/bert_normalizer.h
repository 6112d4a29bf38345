// What BERT's tokenizers do to a text before they look up words: cleaning, lower case, accents, and
// cutting into words. Pure functions over constant tables; any thread. Linear time.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "engine/vocabulary.h"

namespace batchmill {

// Replaces `words` by the words of `text` (valid UTF-8), one after another, and `word_ends` by the
// offsets in it at which they end. `code_points` is working memory.
void split_bert_words(std::string_view text, const WordPieceRules& rules, std::string* words,
                      std::vector<std::size_t>* word_ends, std::u32string* code_points);

}  // namespace batchmill
