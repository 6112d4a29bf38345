// How fast batch lines are read: chat lines of 1 kB, one thread. Prints one JSON line; the rates
// are of five runs after a warm-up.
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "queue/batch_line.h"

namespace {

std::vector<std::string> make_lines(std::size_t count, std::size_t line_bytes) {
  std::mt19937 random(1);
  std::vector<std::string> lines;
  for (std::size_t i = 0; i < count; ++i) {
    std::string line = fmt::format(
        R"({{"custom_id":"request-{}","method":"POST","url":"/v1/chat/completions","body":{{"model":)"
        R"("default","max_tokens":64,"temperature":0,"seed":{},"messages":[{{"role":"system",)"
        R"("content":"Summarize the passage."}},{{"role":"user","content":")",
        i, random());
    while (line.size() + 20 < line_bytes) line += random() % 40 == 0 ? "naïve\\n" : "word ";
    lines.push_back(line + "\"}]}}");
  }
  return lines;
}

}  // namespace

int main() {
  constexpr std::size_t kLines = 20'000, kLineBytes = 1024;
  const std::vector<std::string> lines = make_lines(kLines, kLineBytes);
  std::size_t bytes = 0;
  for (const std::string& line : lines) {
    bytes += line.size();
    if (!batchmill::parse_batch_line(line, {}).line) {
      fmt::print(stderr, "a line was refused: {}\n", line);
      return EXIT_FAILURE;
    }
  }
  std::vector<double> seconds;
  std::size_t messages = 0;
  for (int run = 0; run < 6; ++run) {
    const auto start = std::chrono::steady_clock::now();
    for (const std::string& line : lines) {
      messages += batchmill::parse_batch_line(line, {}).line->body.messages.size();
    }
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
    if (run > 0) seconds.push_back(taken.count());
  }
  if (messages != 6 * 2 * kLines) return EXIT_FAILURE;
  std::sort(seconds.begin(), seconds.end());
  fmt::print(
      R"({{"bench":"parse_batch_line","line_bytes":{},"lines_per_second":{{"median":{:.0f},"min":{:.0f},"max":{:.0f}}},"mb_per_second":{:.0f}}})"
      "\n",
      bytes / kLines, kLines / seconds[2], kLines / seconds[4], kLines / seconds[0],
      static_cast<double>(bytes) / 1e6 / seconds[2]);
  return EXIT_SUCCESS;
}
