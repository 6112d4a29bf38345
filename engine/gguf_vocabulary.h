// Reads a tokenizer's vocabulary from a GGUF file's metadata.
#pragma once

#include <optional>

#include "engine/gguf.h"
#include "engine/tokenizer.h"

namespace batchmill {

// Nothing if the file holds no tokenizer. Throws std::runtime_error naming the file and the key
// that is missing or broken; Tokenizer::create checks the content further.
std::optional<Vocabulary> read_vocabulary(const GgufFile& file);

}  // namespace batchmill
