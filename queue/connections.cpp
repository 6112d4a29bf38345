#include "queue/connections.h"

#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

namespace batchmill {
namespace {

// Bytes that the kernel has received on a TCP connection; false for others.
bool received_bytes(int fd, std::uint64_t* bytes) {
  tcp_info info = {};
  socklen_t size = sizeof info;
  if (::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return false;
  *bytes = info.tcpi_bytes_received;
  return true;
}

}  // namespace

Connections::Connections(std::size_t max_connections, std::uint64_t max_unfinished_bytes)
    : max_connections_(max_connections), max_unfinished_bytes_(max_unfinished_bytes) {}

void Connections::opened(int fd) {
  closed(fd);
  Connection& connection = open_[fd];
  std::uint64_t bytes = 0;
  connection.tcp = received_bytes(fd, &bytes);
  if (connection.tcp) ++num_tcp_;
  if (open_.size() > max_connections_) end(fd);
}

void Connections::closed(int fd) {
  const auto it = open_.find(fd);
  if (it == open_.end()) return;
  if (it->second.tcp) --num_tcp_;
  open_.erase(it);
}

void Connections::finished(int fd) {
  const auto it = open_.find(fd);
  if (it != open_.end() && it->second.tcp) received_bytes(fd, &it->second.finished_bytes);
}

void Connections::end(int fd) {
  const auto it = open_.find(fd);
  if (it == open_.end() || it->second.ending) return;
  // libzmq closes it. Should the number belong to something else by now, then to no more than
  // another client's connection: this process opens no others, and what is no socket stays as it
  // is.
  it->second.ending = true;
  ::shutdown(fd, SHUT_RDWR);
}

std::size_t Connections::end_unfinished(std::uint64_t waiting_bytes) {
  std::size_t count = 0;
  if (num_tcp_ == 0) return count;
  for (auto& [fd, connection] : open_) {
    std::uint64_t bytes = 0;
    if (!connection.tcp || connection.ending || !received_bytes(fd, &bytes)) continue;
    // Fewer than before: the number belongs to a newer connection, whose event is still to be read.
    if (bytes <= connection.finished_bytes) continue;
    if (bytes - connection.finished_bytes <= max_unfinished_bytes_ + waiting_bytes) continue;
    end(fd);
    ++count;
  }
  return count;
}

}  // namespace batchmill
