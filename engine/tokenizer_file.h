// Opens the tokenizer of a model by a path, whatever kind of file has it. Pure; any thread.
#pragma once

#include <memory>
#include <string>

#include "engine/tokenizer.h"

namespace batchmill {

// `path` names a GGUF file (one with a vocabulary only will do), a Hugging Face folder, its
// tokenizer.json or vocab.txt, or a tiktoken rank file. Throws std::system_error if it cannot be
// opened, else std::runtime_error "PATH: what is wrong or not supported".
std::unique_ptr<Tokenizer> open_tokenizer(const std::string& path);

}  // namespace batchmill
