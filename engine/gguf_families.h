// What each architecture's keys say beyond the shapes that all have: one function per family.
#pragma once

#include <string_view>

#include "engine/gguf_keys.h"
#include "engine/model_config.h"

namespace batchmill {

// Completes a config that has its shapes. Throws std::runtime_error that names what is wrong or not
// supported.
using GgufFamilyReader = void (*)(const GgufKeys& keys, ModelConfig* config);

// Null: the architecture is not known.
GgufFamilyReader find_gguf_family(std::string_view architecture);

}  // namespace batchmill
