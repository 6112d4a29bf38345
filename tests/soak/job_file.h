// A job file of any size for measurements: chat lines in families of 16 that share their beginning,
// each padded to a given size. Equal numbers give equal bytes.
#pragma once

#include <cstdint>
#include <string>

namespace batchmill::testing {

struct JobFileOptions {
  std::uint64_t num_lines = 0;
  std::size_t line_bytes = 0;  // at least, with the line end
  std::string prefix;  // of every custom_id
  std::size_t prompt_words = 4;  // of a line's own
  int max_tokens = 2;
};

std::string job_line(const JobFileOptions& options, std::uint64_t number);  // from 1
std::string job_line_id(const JobFileOptions& options, std::uint64_t number);

// Writes the file; returns its size in bytes.
std::uint64_t write_job_file(const std::string& path, const JobFileOptions& options);

}  // namespace batchmill::testing
