// A process's environment as a value, so that what depends on it can be tested.
#pragma once

#include <map>
#include <optional>
#include <string>

namespace batchmill {

using Environment = std::map<std::string, std::string>;

// A copy of this process's environment. Call it before other threads may change it.
Environment process_environment();

// The variable's value; absent if it is not set or empty.
std::optional<std::string> lookup(const Environment& environment, const std::string& name);

}  // namespace batchmill
