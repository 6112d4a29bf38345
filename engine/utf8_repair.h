// Replaces what is not UTF-8 in a prompt and keeps its marks where they belong. Pure; any thread.
#pragma once

#include "engine/tokenizer.h"

namespace batchmill {

// As replace_invalid_utf8(text.text); the U+FFFD of a part with a marked byte is marked.
MarkedText replace_invalid_utf8(const MarkedText& text);

}  // namespace batchmill
