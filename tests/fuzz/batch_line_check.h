// What holds for every line that was parsed, shared by the targets that parse lines. Pure; any
// thread.
#pragma once

#include <string_view>

#include "queue/batch_line.h"

namespace batchmill::fuzz {

void check_parsed_line(std::string_view bytes, const ParsedLine& parsed);

}  // namespace batchmill::fuzz
