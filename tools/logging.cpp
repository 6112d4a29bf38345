#include "tools/logging.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <memory>

namespace batchmill {
namespace {

constexpr const char* kPattern = "%Y-%m-%dT%H:%M:%S.%e%z %l %v";

}  // namespace

void log_to_stderr(const std::string& level) {
  static const bool installed = [] {
    spdlog::set_default_logger(spdlog::stderr_logger_mt("batchmill"));
    spdlog::set_pattern(kPattern);
    return true;
  }();
  static_cast<void>(installed);
  spdlog::set_level(spdlog::level::from_str(level));
}

void announce(const std::string& text) {
  static const std::shared_ptr<spdlog::logger> logger = [] {
    auto made = spdlog::stderr_logger_mt("batchmill answers");
    made->set_pattern(kPattern);
    return made;
  }();
  logger->set_level(spdlog::level::info);  // whatever the log's level was set to
  logger->info(text);
}

}  // namespace batchmill
