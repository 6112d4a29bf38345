// The configuration file, prices included, and the texts of durations and prices.
#include "config/daemon_config.h"
#include "config/duration.h"
#include "tests/fuzz/fuzz_target.h"

namespace batchmill::fuzz {

void run(std::string_view input) {
  if (const auto seconds = parse_duration_s(input)) {
    require(parse_duration_s(format_duration_s(*seconds)) == seconds, "a duration changes");
  }
  static ScratchFile file;
  file.write(input);
  DaemonConfig config;
  if (!accepts<ConfigError>([&] { config = load_config(file.path(), {}); })) return;
  repeated_model_name(config);
  // What can be read can be shown and set.
  const auto values = config_values(config);
  require(!values.empty(), "a configuration has no values");
}

}  // namespace batchmill::fuzz
