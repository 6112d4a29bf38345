// Reads tiktoken's rank files: lines "BASE64 RANK", a token's bytes and its id, which is also its
// place in the order of merging. Pure; any thread.
#pragma once

#include <string>
#include <string_view>

#include "engine/vocabulary.h"

namespace batchmill {

// Whether a file that begins so is a rank file.
bool looks_like_rank_file(std::string_view begin);

// Such a file says neither how text is split nor which special tokens there are. The families known
// by their number of ranks are o200k (199,998), cl100k (100,256), p50k (50,280) and r50k (50,256);
// others are refused. Throws std::system_error if the file cannot be opened, else
// std::runtime_error "PATH: line N: what is wrong".
Vocabulary read_rank_file(const std::string& path);

// The same for a text of any size whose pre-tokenizer is `pre_tokenizer`; no special tokens.
// `name` is what errors call it.
Vocabulary parse_ranks(std::string_view text, std::string_view pre_tokenizer,
                       const std::string& name);

}  // namespace batchmill
