// What holds for every tokenizer and text. Pure; any thread.
#pragma once

#include <string_view>

#include "engine/tokenizer.h"

namespace batchmill::fuzz {

void check_tokenizer(const Tokenizer& tokenizer, std::string_view text);

}  // namespace batchmill::fuzz
