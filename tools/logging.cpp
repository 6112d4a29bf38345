#include "tools/logging.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

namespace batchmill {

void log_to_stderr(const std::string& level) {
  static const bool installed = [] {
    spdlog::set_default_logger(spdlog::stderr_logger_mt("batchmill"));
    spdlog::set_pattern("%Y-%m-%dT%H:%M:%S.%e%z %l %v");
    return true;
  }();
  static_cast<void>(installed);
  spdlog::set_level(spdlog::level::from_str(level));
}

}  // namespace batchmill
