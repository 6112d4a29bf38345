// A directory of one test or measurement, under $TMPDIR (/tmp), removed with all it holds when the
// object goes. What cannot be made, written or read throws std::runtime_error with its path.
#pragma once

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>

namespace batchmill {

class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    std::string pattern = (std::filesystem::temp_directory_path() / "batchmill-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) {
      throw std::system_error(errno, std::generic_category(), "cannot make " + pattern);
    }
    path_ = std::filesystem::canonical(pattern).string();  // as programs print it
  }
  // With what another directory holds.
  explicit TemporaryDirectory(const std::string& original) : TemporaryDirectory() {
    std::filesystem::copy(original, path_, std::filesystem::copy_options::recursive);
  }
  ~TemporaryDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;

  const std::string& path() const { return path_; }
  std::string path(const std::string& name) const { return path_ + "/" + name; }

  // A file, and the folders on its way; returns its path.
  std::string write(const std::string& name, std::string_view content) const {
    const std::string file = path(name);
    std::filesystem::create_directories(std::filesystem::path(file).parent_path());
    std::ofstream stream(file, std::ios::binary | std::ios::trunc);
    stream << content;
    if (!stream.flush()) throw std::runtime_error("cannot write " + file);
    return file;
  }
  std::string read(const std::string& name) const {
    std::ifstream stream(path(name), std::ios::binary);
    if (!stream) throw std::runtime_error("cannot read " + path(name));
    return {std::istreambuf_iterator<char>(stream), {}};
  }
  void remove(const std::string& name) const { std::filesystem::remove_all(path(name)); }

 private:
  std::string path_;
};

}  // namespace batchmill
