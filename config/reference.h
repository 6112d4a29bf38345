// The text of config/batchmill.toml, made from the table of keys.
#pragma once

#include <string>

namespace batchmill {

// Every key with its meaning, unit, range and default. Reads back as the defaults.
std::string reference_config();

}  // namespace batchmill
