#include "tools/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <iostream>

#include "tools/job_end.h"

namespace batchmill {
namespace {

using namespace std::chrono_literals;
constexpr auto kPlainInterval = 5s;
constexpr auto kBarInterval = 100ms;
constexpr std::int64_t kBarCells = 30;

std::int64_t count(const Json& batch, const char* key) {
  return batch.at("request_counts").at(key).get<std::int64_t>();
}

std::string bar(std::int64_t done, std::int64_t total) {
  const std::int64_t cells = total == 0 ? 0 : std::min(kBarCells, done * kBarCells / total);
  return "[" + std::string(static_cast<std::size_t>(cells), '#') +
         std::string(static_cast<std::size_t>(kBarCells - cells), '.') + "]";
}

}  // namespace

std::string human_seconds(std::int64_t seconds) {
  if (seconds < 60) return fmt::format("{}s", seconds);
  if (seconds < 3600) return fmt::format("{}m{:02}s", seconds / 60, seconds % 60);
  return fmt::format("{}h{:02}m", seconds / 3600, seconds / 60 % 60);
}

std::string progress_text(const Json& batch) {
  const Json& more = batch.at("batchmill");
  std::string text = lines_text(batch);
  if (more.at("paused").get<bool>()) text += ", paused";
  if (const double rate = more.at("tokens_per_second"); rate > 0) {
    text += fmt::format(", {:.0f} tokens/s", rate);
  }
  if (more.at("eta_seconds").is_number() && more.at("eta_seconds") > 0) {
    text += fmt::format(", {} left", human_seconds(more.at("eta_seconds")));
  }
  return text;
}

Progress::Progress(bool quiet)
    : quiet_(quiet),
      terminal_(::isatty(STDERR_FILENO) == 1),
      last_(std::chrono::steady_clock::now()) {}

void Progress::show(const Json& batch) {
  if (quiet_) return;
  const auto now = std::chrono::steady_clock::now();
  if (now - last_ < (terminal_ ? std::chrono::nanoseconds(kBarInterval)
                               : std::chrono::nanoseconds(kPlainInterval))) {
    return;
  }
  last_ = now;
  const std::string text = progress_text(batch);
  if (!terminal_) {
    if (text != last_text_) std::cerr << text << std::endl;
    last_text_ = text;
    return;
  }
  const std::int64_t over = count(batch, "completed") + count(batch, "failed");
  std::clog << "\r\x1b[K" << bar(over, count(batch, "total")) << ' ' << text << std::flush;
  drawn_ = true;
}

void Progress::clear() {
  if (drawn_) std::clog << "\r\x1b[K" << std::flush;
  drawn_ = false;
}

}  // namespace batchmill
