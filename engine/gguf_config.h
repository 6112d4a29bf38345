// The model that a GGUF file's metadata describe.
#pragma once

#include "engine/gguf.h"
#include "engine/model_config.h"

namespace batchmill {

// Reads and checks the shapes that a GGUF file states. Throws std::runtime_error naming the key
// that is missing or out of range, or the architecture or feature that is not supported.
ModelConfig read_model_config(const GgufFile& file);

}  // namespace batchmill
