// A file that appears whole or not at all: written as PATH.part, renamed at the end. Standard
// output and what is no regular file (a pipe, /dev/null) are written directly. One thread.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>

namespace batchmill {

class OutputFile {
 public:
  // "" or "-": standard output. Throws ToolError (kExitStore) when it cannot be made.
  explicit OutputFile(const std::string& path);
  ~OutputFile();  // without commit(): the .part file goes
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  // Throws ToolError (kExitStore).
  void write(std::string_view bytes);
  void flush();
  // Everything is on disk and under its name when it returns.
  void commit();

 private:
  [[noreturn]] void fail(const char* what);

  std::string path_;
  std::string part_path_;  // empty: written directly
  std::string buffer_;
  int fd_ = -1;
};

// Throws ToolError (kExitUsage) unless `path` may become an output: in a folder that exists, not a
// folder itself, and under no name one of `inputs` or `outputs`; neither is what it is written as
// until the end, nor what the other outputs are.
void check_output_path(const std::string& flag, const std::string& path,
                       std::initializer_list<std::string> inputs,
                       std::initializer_list<std::string> outputs);

}  // namespace batchmill
