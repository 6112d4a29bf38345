#include "queue/socket_path.h"

#include <fmt/core.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>

namespace batchmill {
namespace {

constexpr std::string_view kScheme = "ipc://";
constexpr std::size_t kMaxPathBytes = sizeof(sockaddr_un{}.sun_path) - 1;

// 0 if a process accepts connections at `path`, else the error number.
int try_connect(const std::string& path) {
  const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return errno;
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, kMaxPathBytes);
  const int error =
      ::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 ? 0 : errno;
  ::close(fd);
  return error == EAGAIN ? 0 : error;  // EAGAIN: it is there, its queue is full
}

}  // namespace

std::optional<std::string> socket_path(std::string_view endpoint) {
  if (!endpoint.starts_with(kScheme)) return std::nullopt;
  const std::string path(endpoint.substr(kScheme.size()));
  if (path.empty() || path == "*" || path.front() == '@') {
    throw std::runtime_error(fmt::format("{}: an ipc endpoint needs the path of a file", endpoint));
  }
  if (path.size() > kMaxPathBytes) {
    throw std::runtime_error(fmt::format("{}: the path has {} bytes, a socket's may have {}",
                                         endpoint, path.size(), kMaxPathBytes));
  }
  return path;
}

void remove_stale_socket(const std::string& path) {
  struct stat status = {};
  if (::lstat(path.c_str(), &status) != 0) {
    if (errno == ENOENT) return;
    throw std::runtime_error(fmt::format("{}: {}", path, std::strerror(errno)));
  }
  if (!S_ISSOCK(status.st_mode)) {
    throw std::runtime_error(fmt::format("{} exists and is not a socket", path));
  }
  const int error = try_connect(path);
  if (error == 0) {
    throw std::runtime_error(fmt::format("{} is served by another process", path));
  }
  if (error != ECONNREFUSED || (::unlink(path.c_str()) != 0 && errno != ENOENT)) {
    throw std::runtime_error(
        fmt::format("{}: {}", path, std::strerror(error != ECONNREFUSED ? error : errno)));
  }
}

}  // namespace batchmill
