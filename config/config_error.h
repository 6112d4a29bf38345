// What every function of config/ throws when something a user wrote cannot be used. The message is
// one line that names the place ("FILE:LINE", "environment variable X" or a flag), the key and what
// was expected; programs print it and exit with code 2.
#pragma once

#include <stdexcept>

namespace batchmill {

class ConfigError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace batchmill
