// What the targets of this folder share. Each target is one source that defines run(): it gives any
// bytes to one reader of what comes from outside and checks what must hold whatever they are. The
// same source is a libFuzzer program (preset fuzz) and, with replay_main.cpp, a test over the
// inputs in corpus/. One thread.
#pragma once

#include <exception>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace batchmill::fuzz {

// Defined by the target. What it throws is a finding, as is what ends the process.
void run(std::string_view input);

// A finding unless `holds`.
void require(bool holds, const char* what);

// Whether `body` came to its end; false if it threw one of `Expected`, which is how the reader says
// that the bytes are not what it reads.
template <typename... Expected, typename Body>
bool accepts(const Body& body) {
  try {
    body();
    return true;
  } catch (const std::exception& error) {
    if (!(... || (dynamic_cast<const Expected*>(&error) != nullptr))) throw;
    require(*error.what() != '\0', "an error says nothing");
    return false;
  }
}

// An input of several named parts: a line "#=NAME" begins one, which ends before the newline of the
// next such line or with the input. What comes before the first is the part "".
std::vector<std::pair<std::string, std::string_view>> split_parts(std::string_view input);

// The part of that name; "" if there is none.
std::string_view find_part(const std::vector<std::pair<std::string, std::string_view>>& parts,
                           std::string_view name);

// A file in memory, for readers that take a path.
class ScratchFile {
 public:
  ScratchFile();
  ~ScratchFile();
  ScratchFile(const ScratchFile&) = delete;
  ScratchFile& operator=(const ScratchFile&) = delete;

  void write(std::string_view content);
  const std::string& path() const { return path_; }

 private:
  int fd_;
  std::string path_;
};

// A folder in memory if there is such a file system. Named files are written once per input and go
// with clear().
class ScratchFolder {
 public:
  ScratchFolder();
  ~ScratchFolder();
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;

  // False, and nothing is written, if `name` is no plain file name or "FOLDER/FILE".
  bool write(const std::string& name, std::string_view content);
  void clear();
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace batchmill::fuzz
