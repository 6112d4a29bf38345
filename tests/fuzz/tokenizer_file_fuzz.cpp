// The files that define a tokenizer: parts "tokenizer.json", "tokenizer_config.json", "vocab.txt"
// of a folder, or "ranks" of tiktoken's form; "text" goes through what they define.
#include <algorithm>
#include <stdexcept>
#include <system_error>

#include "engine/hf_vocabulary.h"
#include "engine/rank_file.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/tokenizer_check.h"

namespace batchmill::fuzz {

void run(std::string_view input) {
  static ScratchFolder folder;
  folder.clear();
  const auto parts = split_parts(input);
  const std::string_view ranks = find_part(parts, "ranks");
  for (const auto& [name, content] : parts) {
    if (name == "tokenizer.json" || name == "tokenizer_config.json" || name == "vocab.txt") {
      folder.write(name, content);
    }
  }
  accepts<std::runtime_error>([&] {
    std::optional<Vocabulary> vocabulary;
    if (ranks.empty()) {
      vocabulary = read_hf_vocabulary(folder.path());
    } else {
      looks_like_rank_file(ranks);
      vocabulary = parse_ranks(ranks, "gpt-2", "ranks");
    }
    if (!vocabulary) return;
    require(vocabulary->tokens.size() <= 2 * input.size() + 10000,
            "a small file made a large vocabulary");
    check_tokenizer(*Tokenizer::create(std::move(*vocabulary)), find_part(parts, "text"));
  });
}

}  // namespace batchmill::fuzz
