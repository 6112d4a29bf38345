// Reads a file of JSON lines (plain, .gz, .zst; "-": standard input), one object after another.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "queue/wire.h"

namespace batchmill {

// Calls `each` for every line that is not blank. Throws InputError, ToolError (kExitUsage: a line
// that is no JSON object, naming it).
void for_each_json_line(const std::string& path,
                        const std::function<void(std::uint64_t line, const Json& object)>& each);

}  // namespace batchmill
