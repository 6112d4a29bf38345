// A folder that lives as long as the object.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>

namespace batchmill::testing {

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "batchmill-test-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("cannot make " + name);
    path_ = name;
  }
  // With the plain files of another folder.
  explicit TemporaryFolder(const std::string& original) : TemporaryFolder() {
    std::filesystem::copy(original, path_, std::filesystem::copy_options::recursive);
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string path(const std::string& name) const { return path_ + "/" + name; }

  void write(const std::string& name, const std::string& content) const {
    std::filesystem::create_directories(std::filesystem::path(path(name)).parent_path());
    std::ofstream(path(name), std::ios::binary | std::ios::trunc) << content;
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

}  // namespace batchmill::testing
