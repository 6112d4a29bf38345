// Where the log goes: standard error, so that data on standard output stays clean.
#pragma once

#include <string>

namespace batchmill {

// `level`: "trace", "debug", "info", "warn", "error", "off". May be called again to change it.
void log_to_stderr(const std::string& level);

// A line of the log that no level hides: the answer to a signal. The main thread.
void announce(const std::string& text);

}  // namespace batchmill
