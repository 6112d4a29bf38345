#include "tools/interrupt_hint.h"

#include <fmt/format.h>

#include <utility>

#include "tools/submission.h"

namespace batchmill {

std::string access_flags(const Settings& settings) {
  std::string flags;
  const auto add = [&](const char* flag, const std::string& value) {
    if (!value.empty()) flags += fmt::format(" {} {}", flag, shell_quoted(value));
  };
  add("--config", settings.config_file);
  add("--data", settings.data);
  add("--endpoint", settings.endpoint);
  add("--key", settings.key_file);
  add("--server-key", settings.server_key);
  return flags;
}

InterruptHint::InterruptHint(std::string goes_on)
    : text_("batchmill: interrupted; this goes on where it stopped:\n  " + std::move(goes_on)) {}

void InterruptHint::stored(const std::string& job, const Settings& settings) {
  const std::lock_guard lock(mutex_);
  text_ = fmt::format(
      "batchmill: interrupted; {} is stored and goes on; this follows it:\n"
      "  batchmill watch {}{}",
      job, job, access_flags(settings));
}

std::string InterruptHint::text() const {
  const std::lock_guard lock(mutex_);
  return text_;
}

}  // namespace batchmill
