#include "tests/soak/job_file.h"

#include <fmt/format.h>

#include <array>
#include <fstream>
#include <stdexcept>

namespace batchmill::testing {
namespace {

constexpr std::uint64_t kFamily = 16;
constexpr std::array kWords = {"water",  "stone",  "river",  "market", "garden", "letter",
                               "winter", "engine", "harbor", "summer", "paper",  "silver"};

// Words that depend on `seed` alone.
std::string words(std::uint64_t seed, std::size_t count) {
  std::string text;
  for (std::size_t i = 0; i < count; ++i) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    text += ' ';
    text += kWords[(seed >> 33) % kWords.size()];
  }
  return text;
}

}  // namespace

std::string job_line_id(const JobFileOptions& options, std::uint64_t number) {
  return fmt::format("{}{:07}", options.prefix, number);
}

// `user` is a field that changes no answer: it holds the padding.
std::string job_line(const JobFileOptions& options, std::uint64_t number) {
  std::string line = fmt::format(
      R"({{"custom_id":"{}","method":"POST","url":"/v1/chat/completions","body":{{"model":"default",)"
      R"("max_tokens":{},"min_tokens":{},"ignore_eos":true,"temperature":0,)"
      R"("messages":[{{"role":"user","content":"{}:{} {}"}}],"user":")",
      job_line_id(options, number), options.max_tokens, options.max_tokens,
      words(number / kFamily, 4), words(number, options.prompt_words), number % kFamily);
  constexpr std::size_t kEndBytes = 4;  // "}}\n
  if (line.size() + kEndBytes < options.line_bytes) {
    line.append(options.line_bytes - line.size() - kEndBytes, 'x');
  }
  line += "\"}}\n";
  return line;
}

std::uint64_t write_job_file(const std::string& path, const JobFileOptions& options) {
  std::ofstream file(path, std::ios::binary);
  std::uint64_t bytes = 0;
  for (std::uint64_t number = 1; number <= options.num_lines; ++number) {
    const std::string line = job_line(options, number);
    file << line;
    bytes += line.size();
  }
  file.close();
  if (!file) throw std::runtime_error("cannot write " + path);
  return bytes;
}

}  // namespace batchmill::testing
