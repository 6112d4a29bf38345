// The pre-tokenizers of DeepSeek's models: several splits one after another, each inside the pieces
// of the one before. Pure functions; any thread.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace batchmill {

// As PreTokenizer::split.
void split_deepseek_llm(std::string_view text, std::vector<std::size_t>* piece_ends);
void split_deepseek_v3(std::string_view text, std::vector<std::size_t>* piece_ends);

// The second expression of deepseek-llm, which lists ranges of letters, as its tokenizer.json has
// it.
std::string deepseek_llm_letters();

}  // namespace batchmill
