#include "tests/queue/zmtp_peer.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <stdexcept>
#include <system_error>
#include <utility>

namespace batchmill {
namespace {

constexpr std::size_t kGreetingBytes = 64;
constexpr unsigned char kMore = 1, kLong = 2, kCommand = 4;

[[noreturn]] void throw_errno(const char* what) {
  throw std::system_error(errno, std::generic_category(), what);
}

void set_timeouts(int fd) {
  const timeval ten_seconds = {10, 0};
  ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &ten_seconds, sizeof ten_seconds);
  ::setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &ten_seconds, sizeof ten_seconds);
}

sockaddr_un unix_address(const std::string& path) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  return address;
}

int connect_to(const std::string& endpoint) {
  const bool ipc = endpoint.starts_with("ipc://");
  const int fd = ::socket(ipc ? AF_UNIX : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) throw_errno("socket");
  int status = 0;
  if (ipc) {
    const sockaddr_un address = unix_address(endpoint.substr(6));
    status = ::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address);
  } else {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port =
        htons(static_cast<std::uint16_t>(std::stoi(endpoint.substr(endpoint.rfind(':') + 1))));
    status = ::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address);
  }
  if (status != 0) {
    ::close(fd);
    throw_errno("connect");
  }
  return fd;
}

std::string big_endian(std::uint64_t value, int bytes) {
  std::string out;
  for (int shift = 8 * (bytes - 1); shift >= 0; shift -= 8) {
    out += static_cast<char>(value >> shift & 0xff);
  }
  return out;
}

std::string frame_head(std::uint64_t size, bool more) {
  const auto flags = static_cast<char>((size > 255 ? kLong : 0) | (more ? kMore : 0));
  return flags + big_endian(size, size > 255 ? 8 : 1);
}

}  // namespace

ZmtpPeer::ZmtpPeer(const std::string& endpoint) : ZmtpPeer(connect_to(endpoint)) {}

ZmtpPeer::ZmtpPeer(int fd) : fd_(fd) { set_timeouts(fd_); }

ZmtpPeer ZmtpPeer::accept(int listener) {
  const int fd = ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
  if (fd < 0) throw_errno("accept");
  return ZmtpPeer(fd);
}

ZmtpPeer::~ZmtpPeer() { close(); }

ZmtpPeer::ZmtpPeer(ZmtpPeer&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

void ZmtpPeer::close() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

bool ZmtpPeer::shake_hands(std::string_view socket_type) {
  std::string greeting = std::string("\xff\0\0\0\0\0\0\0\0\x7f\x03\0", 12) + "NULL";
  greeting.resize(kGreetingBytes, '\0');
  std::string ready = "\x05READY\x0bSocket-Type" + big_endian(socket_type.size(), 4);
  ready += socket_type;
  const std::string command =
      std::string{static_cast<char>(kCommand), static_cast<char>(ready.size())} + ready;
  if (!send_bytes(greeting) || !read_bytes(kGreetingBytes)) return false;
  if (!send_bytes(command)) return false;
  const auto head = read_bytes(2);
  return head && read_bytes(static_cast<unsigned char>((*head)[1]));
}

bool ZmtpPeer::send_bytes(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(sent));
  }
  return true;
}

std::string ZmtpPeer::frame_bytes(std::string_view body) {
  return frame_head(body.size(), false).append(body);
}

std::string ZmtpPeer::ping_bytes() {
  const std::string ping("\x04PING\0\0", 7);
  return std::string{static_cast<char>(kCommand), static_cast<char>(ping.size())} + ping;
}

bool ZmtpPeer::send_frame_head(std::uint64_t size, bool more) {
  return send_bytes(frame_head(size, more));
}

bool ZmtpPeer::send_frame(std::string_view body, bool more) {
  return send_frame_head(body.size(), more) && send_bytes(body);
}

std::optional<std::string> ZmtpPeer::read_bytes(std::size_t size) {
  std::string bytes(size, '\0');
  std::size_t have = 0;
  while (have < size) {
    const ssize_t got = ::recv(fd_, bytes.data() + have, size - have, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return std::nullopt;
    have += static_cast<std::size_t>(got);
  }
  return bytes;
}

std::optional<std::vector<std::string>> ZmtpPeer::read_message() {
  std::vector<std::string> frames;
  while (true) {
    const auto flags = read_bytes(1);
    if (!flags) return std::nullopt;
    const auto bits = static_cast<unsigned char>((*flags)[0]);
    const auto size_bytes = read_bytes((bits & kLong) != 0 ? 8 : 1);
    if (!size_bytes) return std::nullopt;
    std::uint64_t size = 0;
    for (const char byte : *size_bytes) size = size << 8 | static_cast<unsigned char>(byte);
    auto body = read_bytes(size);
    if (!body) return std::nullopt;
    if ((bits & kCommand) != 0) continue;
    frames.push_back(std::move(*body));
    if ((bits & kMore) == 0) return frames;
  }
}

bool ZmtpPeer::wait_for_end() {
  char bytes[4096];
  while (true) {
    const ssize_t got = ::recv(fd_, bytes, sizeof bytes, 0);
    if (got == 0) return true;
    if (got < 0 && errno != EINTR) return errno != EAGAIN && errno != EWOULDBLOCK;
  }
}

int listen_at(const std::string& path) {
  const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) throw_errno("socket");
  const sockaddr_un address = unix_address(path);
  if (::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
      ::listen(fd, 64) != 0) {
    ::close(fd);
    throw_errno("bind");
  }
  return fd;
}

}  // namespace batchmill
