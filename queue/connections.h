// The open connections of a server's sockets: as many as may be, and none that sends without ever
// coming to an end. Owned by a JobServer; its thread.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

namespace batchmill {

class Connections {
 public:
  // At most `max_connections` stay. One may be `max_unfinished_bytes` ahead of the last message
  // that was read from it.
  Connections(std::size_t max_connections, std::uint64_t max_unfinished_bytes);

  void opened(int fd);  // ends it if there are enough
  void closed(int fd);
  // All that had come from it was read as whole messages a moment ago.
  void finished(int fd);

  // Ends a connection: the other side sees it, and closed() follows. Nothing for one that is not
  // open.
  void end(int fd);
  // Ends those of tcp:// that are too far ahead of their last message; how many. libzmq collects
  // the parts of a message without a limit, and Unix sockets do not tell how much they were sent.
  // `waiting_bytes`: of whole messages that may have come and have not been read.
  std::size_t end_unfinished(std::uint64_t waiting_bytes);

  std::size_t size() const { return open_.size(); }
  std::size_t num_tcp() const { return num_tcp_; }

 private:
  struct Connection {
    bool tcp = false;
    bool ending = false;
    std::uint64_t finished_bytes = 0;  // received in all when the last message was read
  };

  std::size_t max_connections_;
  std::uint64_t max_unfinished_bytes_;
  std::unordered_map<int, Connection> open_;  // by file descriptor
  std::size_t num_tcp_ = 0;
};

}  // namespace batchmill
