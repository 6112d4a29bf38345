// Reads a tokenizer's vocabulary from a Hugging Face folder. Pure; any thread.
#pragma once

#include <optional>
#include <string>

#include "engine/vocabulary.h"

namespace batchmill {

// From `folder`'s tokenizer.json, or vocab.txt for WordPiece, with tokenizer_config.json if it is
// there. Nothing if the folder has neither. Throws std::system_error if a file cannot be read, else
// std::runtime_error "PATH: place: what is broken or not supported"; Tokenizer::create checks the
// content further.
std::optional<Vocabulary> read_hf_vocabulary(const std::string& folder);

// The same by the path of a tokenizer.json or vocab.txt; what stands beside it counts too.
Vocabulary read_tokenizer_json(const std::string& path);
Vocabulary read_vocab_txt(const std::string& path);

}  // namespace batchmill
