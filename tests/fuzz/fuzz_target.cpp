#include "tests/fuzz/fuzz_target.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <system_error>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  batchmill::fuzz::run({reinterpret_cast<const char*>(data), size});
  return 0;
}

namespace batchmill::fuzz {
namespace {

constexpr std::string_view kPartMark = "#=";

[[noreturn]] void fail(const char* what) {
  throw std::system_error(errno, std::generic_category(), what);
}

}  // namespace

void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "finding: %s\n", what);
  std::abort();
}

std::vector<std::pair<std::string, std::string_view>> split_parts(std::string_view input) {
  std::vector<std::pair<std::string, std::string_view>> parts;
  std::string name;
  std::size_t begin = 0;  // of the part
  for (std::size_t line = 0; line < input.size();) {
    const std::size_t line_end = std::min(input.find('\n', line), input.size());
    if (input.substr(line).starts_with(kPartMark)) {
      const std::size_t end = line > begin ? line - 1 : begin;  // before the newline
      if (line > 0) parts.emplace_back(name, input.substr(begin, end - begin));
      name = input.substr(line + kPartMark.size(), line_end - line - kPartMark.size());
      begin = std::min(line_end + 1, input.size());
    }
    line = line_end + 1;
  }
  parts.emplace_back(name, input.substr(begin));
  return parts;
}

std::string_view find_part(const std::vector<std::pair<std::string, std::string_view>>& parts,
                           std::string_view name) {
  for (const auto& [part_name, content] : parts) {
    if (part_name == name) return content;
  }
  return {};
}

ScratchFile::ScratchFile() : fd_(::memfd_create("batchmill-fuzz", MFD_CLOEXEC)) {
  if (fd_ < 0) fail("memfd_create");
  path_ = "/proc/self/fd/" + std::to_string(fd_);
}

ScratchFile::~ScratchFile() { ::close(fd_); }

void ScratchFile::write(std::string_view content) {
  if (::ftruncate(fd_, 0) != 0) fail("ftruncate");
  std::size_t written = 0;
  while (written < content.size()) {
    const ssize_t count = ::pwrite(fd_, content.data() + written, content.size() - written,
                                   static_cast<off_t>(written));
    if (count < 0) fail("pwrite");
    written += static_cast<std::size_t>(count);
  }
}

ScratchFolder::ScratchFolder() {
  std::error_code ignored;
  const std::filesystem::path parent = std::filesystem::is_directory("/dev/shm", ignored)
                                           ? std::filesystem::path("/dev/shm")
                                           : std::filesystem::temp_directory_path();
  path_ = (parent / "batchmill-fuzz-XXXXXX").string();
  if (::mkdtemp(path_.data()) == nullptr) fail("mkdtemp");
}

ScratchFolder::~ScratchFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

bool ScratchFolder::write(const std::string& name, std::string_view content) {
  const std::size_t slash = name.find('/');
  const auto plain = [](std::string_view part) {
    return !part.empty() && part.size() < 100 && part != "." && part != ".." &&
           part.find_first_of(std::string_view("/\0", 2)) == part.npos;
  };
  const std::string_view first = std::string_view(name).substr(0, slash);
  if (!plain(first)) return false;
  std::error_code error;
  if (slash != std::string::npos) {
    if (!plain(std::string_view(name).substr(slash + 1))) return false;
    std::filesystem::create_directory(path_ + "/" + std::string(first), error);
  }
  std::ofstream file(path_ + "/" + name, std::ios::binary | std::ios::trunc);
  file << content;
  return file.good();
}

void ScratchFolder::clear() {
  for (const auto& entry : std::filesystem::directory_iterator(path_)) {
    std::filesystem::remove_all(entry.path());
  }
}

}  // namespace batchmill::fuzz
