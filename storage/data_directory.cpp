#include "storage/data_directory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "storage/job_store.h"

namespace batchmill {
namespace {

// Longest path that fits a Unix socket's address.
constexpr std::size_t kMaxSocketPathBytes = 107;

// /tmp/batchmill-UID, made private. Anyone may make names in /tmp: what is there must be a
// directory of this user, or who made it could answer in the daemon's place.
std::string own_runtime_directory() {
  const std::string path = fmt::format("/tmp/batchmill-{}", ::getuid());
  if (::mkdir(path.c_str(), 0700) == 0) return path;
  int error = errno;
  if (error == EEXIST) {
    const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    error = errno;
    struct stat status {};
    if (fd >= 0) {
      error = ::fstat(fd, &status) != 0 ? errno : status.st_uid != ::geteuid() ? EPERM : 0;
      if (error == 0 && (status.st_mode & 0077) != 0 && ::fchmod(fd, 0700) != 0) error = errno;
      ::close(fd);
    }
    if (error == 0) return path;
  }
  throw StorageError(
      StorageError::Kind::kIo,
      fmt::format("the directory of the control socket, {}, cannot be used: {}", path,
                  error == EPERM ? "it belongs to another user" : std::strerror(error)));
}

int read_pid(int fd) {
  char text[32] = {};
  const ssize_t size = ::pread(fd, text, sizeof(text) - 1, 0);
  return size > 0 ? std::atoi(text) : 0;
}

}  // namespace

DataDirectory::DataDirectory(std::string path, Lock lock) : path_(std::move(path)) {
  const bool exclusive = lock == Lock::kExclusive;
  if (exclusive) {
    const mode_t old_mask = ::umask(077);
    std::error_code error;
    std::filesystem::create_directories(path_, error);
    ::umask(old_mask);
    if (error) {
      throw StorageError(
          StorageError::Kind::kIo,
          fmt::format("cannot create the data directory {}: {}", path_, error.message()));
    }
  }
  const std::string lock_path = path_ + "/lock";
  fd_ = ::open(lock_path.c_str(), exclusive ? O_RDWR | O_CREAT | O_CLOEXEC : O_RDONLY | O_CLOEXEC,
               0600);
  if (fd_ < 0) {
    const bool missing = errno == ENOENT;
    throw StorageError(missing ? StorageError::Kind::kMissing : StorageError::Kind::kIo,
                       fmt::format("cannot open {}: {}", lock_path, std::strerror(errno)));
  }
  if (::flock(fd_, (exclusive ? LOCK_EX : LOCK_SH) | LOCK_NB) != 0) {
    const int pid = read_pid(fd_);
    ::close(fd_);
    throw StorageError(StorageError::Kind::kLocked,
                       fmt::format("the data directory {} is in use by process {}", path_, pid));
  }
  if (exclusive) {
    const std::string pid = std::to_string(::getpid());
    if (::ftruncate(fd_, 0) != 0 ||
        ::pwrite(fd_, pid.data(), pid.size(), 0) != static_cast<ssize_t>(pid.size())) {
      const int error = errno;
      ::close(fd_);
      throw StorageError(error == ENOSPC ? StorageError::Kind::kFull : StorageError::Kind::kIo,
                         fmt::format("cannot write {}: {}", lock_path, std::strerror(error)));
    }
  }
}

DataDirectory::~DataDirectory() { ::close(fd_); }

std::string DataDirectory::control_endpoint(const std::string& path) {
  std::string socket = path + "/control.sock";
  if (socket.size() > kMaxSocketPathBytes) {
    const char* runtime = std::getenv("XDG_RUNTIME_DIR");
    const bool has_runtime = runtime != nullptr && *runtime != '\0';
    socket = fmt::format("{}/batchmill-control-{:016x}.sock",
                         has_runtime ? runtime : own_runtime_directory(),
                         XXH3_64bits(path.data(), path.size()));
  }
  if (socket.size() > kMaxSocketPathBytes) {
    throw StorageError(StorageError::Kind::kIo,
                       fmt::format("the paths of data directory {} and of XDG_RUNTIME_DIR are too "
                                   "long for a socket (at most {} bytes)",
                                   path, kMaxSocketPathBytes));
  }
  return "ipc://" + socket;
}

int DataDirectory::holder(const std::string& path) {
  const int fd = ::open((path + "/lock").c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  const bool held = ::flock(fd, LOCK_SH | LOCK_NB) != 0;
  const int pid = held ? read_pid(fd) : 0;
  ::close(fd);
  return pid;
}

}  // namespace batchmill
