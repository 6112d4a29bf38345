// A file with given content that lives as long as the object.
#pragma once

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>

namespace batchmill::testing {

class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& content) {
    std::string name = (std::filesystem::temp_directory_path() / "batchmill-test-XXXXXX").string();
    const int descriptor = ::mkstemp(name.data());
    if (descriptor < 0) throw std::runtime_error("cannot make " + name);
    ::close(descriptor);
    path_ = name;
    write(content);
  }
  ~TemporaryFile() { std::filesystem::remove(path_); }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  void write(const std::string& content) const {
    std::ofstream(path_, std::ios::binary | std::ios::trunc) << content;
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace batchmill::testing
