#include "tools/output_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <set>

#include "queue/durable_name.h"
#include "tools/exit_code.h"

namespace batchmill {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kBufferBytes = 1 << 20;

bool is_standard_output(const std::string& path) { return path.empty() || path == "-"; }

bool exists_and_is_not_regular(const std::string& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode);
}

// A link keeps its place; the file it names, which need not exist yet, is replaced.
std::string link_target(const fs::path& path) {
  constexpr int kMaxLinks = 40;
  fs::path target = path;
  std::error_code error;
  for (int i = 0; i < kMaxLinks && fs::is_symlink(target, error); ++i) {
    const fs::path next = fs::read_symlink(target, error);
    if (error) break;
    target = target.parent_path() / next;
  }
  return target.string();
}

// The one name of a file, which need not exist, whatever links lead to it.
fs::path resolved(const std::string& path) {
  const fs::path target = fs::absolute(link_target(path));
  std::error_code error;
  const fs::path folder = fs::canonical(target.parent_path(), error);
  return error ? target.lexically_normal() : folder / target.filename();
}

// The names under which an output is written.
std::set<fs::path> names_written(const std::string& path) {
  const fs::path name = resolved(path);
  return {name, name.string() + ".part"};
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
                       std::initializer_list<std::string> inputs,
                       std::initializer_list<std::string> outputs) {
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
  const bool is_direct = exists_and_is_not_regular(path);
  // A pipe is read or written by whoever has it; several outputs may go to /dev/null.
  const auto refuse_same = [&](const std::string& other) {
    if (!is_direct) {
      throw ToolError(kExitUsage, flag + " " + path + " is the same file as " + other);
    }
  };
  const std::set<fs::path> names = names_written(path);
  for (const std::string& input : inputs) {
    if (is_standard_output(input)) continue;
    if (fs::equivalent(path, input, error) || names.contains(resolved(input))) refuse_same(input);
  }
  for (const std::string& other : outputs) {
    if (is_standard_output(other) || exists_and_is_not_regular(other)) continue;
    const std::set<fs::path> others = names_written(other);
    const bool meet =
        std::ranges::any_of(names, [&](const fs::path& name) { return others.contains(name); });
    if (fs::equivalent(path, other, error) || meet) refuse_same(other);
  }
}

}  // namespace batchmill
