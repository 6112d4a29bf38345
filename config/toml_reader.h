// Reads a TOML file into a DaemonConfig, strictly: an unknown key, a wrong type or a value out of
// range is a ConfigError with file, line and key. Internal to config/.
#pragma once

#include <string>

#include "config/daemon_config.h"
#include "config/environment.h"

namespace batchmill {

// Keys that the file does not name keep their values. The environment is asked for HOME alone.
void read_toml(const std::string& file, const Environment& environment, DaemonConfig& config);

}  // namespace batchmill
