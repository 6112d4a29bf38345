// Reads a file of JSON lines (plain, .gz, .zst; "-": standard input), one object after another.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "queue/wire.h"

namespace batchmill {

using JsonLineFunction = std::function<void(std::uint64_t line, const Json& object)>;

// Calls `each` for every line that is not blank, or `broken`, with null, for one that is no JSON
// object. Throws InputError, and without `broken` ToolError (kExitUsage, naming the line).
void for_each_json_line(const std::string& path, const JsonLineFunction& each,
                        const JsonLineFunction& broken = nullptr);

}  // namespace batchmill
