#include "tools/output_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "queue/durable_name.h"
#include "tools/exit_code.h"

namespace batchmill {
namespace {

constexpr std::size_t kBufferBytes = 1 << 20;

bool is_standard_output(const std::string& path) { return path.empty() || path == "-"; }

bool exists_and_is_not_regular(const std::string& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode);
}

// A link keeps its place; the file it names, which need not exist yet, is replaced.
std::string link_target(const std::filesystem::path& path) {
  constexpr int kMaxLinks = 40;
  std::filesystem::path target = path;
  std::error_code error;
  for (int i = 0; i < kMaxLinks && std::filesystem::is_symlink(target, error); ++i) {
    const std::filesystem::path next = std::filesystem::read_symlink(target, error);
    if (error) break;
    target = target.parent_path() / next;
  }
  return target.string();
}

}  // namespace

OutputFile::OutputFile(const std::string& path) : path_(path) {
  if (is_standard_output(path)) {
    path_ = "standard output";
    fd_ = STDOUT_FILENO;
    return;
  }
  if (exists_and_is_not_regular(path)) {
    fd_ = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
  } else {
    path_ = link_target(path);
    part_path_ = path_ + ".part";
    fd_ = ::open(part_path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  }
  if (fd_ < 0) fail("cannot write");
}

OutputFile::~OutputFile() {
  if (fd_ < 0 || fd_ == STDOUT_FILENO) return;
  ::close(fd_);
  if (!part_path_.empty()) ::unlink(part_path_.c_str());
}

void OutputFile::fail(const char* what) {
  throw ToolError(kExitStore, std::string(what) + " " + path_ + ": " + std::strerror(errno));
}

void OutputFile::write(std::string_view bytes) {
  buffer_ += bytes;
  if (buffer_.size() >= kBufferBytes) flush();
}

void OutputFile::flush() {
  std::string_view rest = buffer_;
  while (!rest.empty()) {
    const ssize_t written = ::write(fd_, rest.data(), rest.size());
    if (written < 0) {
      if (errno == EINTR) continue;
      fail("cannot write");
    }
    rest.remove_prefix(static_cast<std::size_t>(written));
  }
  buffer_.clear();
}

void OutputFile::commit() {
  flush();
  if (fd_ == STDOUT_FILENO) return;
  if (!part_path_.empty() && ::fsync(fd_) != 0) fail("cannot write");
  const int fd = fd_;
  fd_ = -1;
  if (::close(fd) != 0) fail("cannot write");
  if (part_path_.empty()) return;
  if (::rename(part_path_.c_str(), path_.c_str()) != 0) fail("cannot replace");
  if (!make_name_durable(path_)) fail("cannot sync the folder of");
}

void check_output_path(const std::string& flag, const std::string& path,
                       std::initializer_list<std::string> others) {
  namespace fs = std::filesystem;
  if (is_standard_output(path)) return;
  std::error_code error;
  fs::path folder = fs::path(path).parent_path();
  if (folder.empty()) folder = ".";
  if (!fs::is_directory(folder, error)) {
    throw ToolError(kExitUsage, flag + " " + path + ": there is no folder " + folder.string());
  }
  if (fs::is_directory(path, error)) {
    throw ToolError(kExitUsage, flag + " " + path + " is a folder, not a file");
  }
  for (const std::string& other : others) {
    if (is_standard_output(other)) continue;
    const bool same = fs::equivalent(path, other, error) ||
                      fs::weakly_canonical(path) == fs::weakly_canonical(other);
    // Several outputs may go to /dev/null.
    if (same && !exists_and_is_not_regular(path)) {
      throw ToolError(kExitUsage, flag + " " + path + " is the same file as " + other);
    }
  }
}

}  // namespace batchmill
