// One end of a ZeroMQ connection made of a plain socket, so that a test can do what libzmq never
// does: stop in the middle, send nonsense, leave without a word.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace batchmill {

class ZmtpPeer {
 public:
  // The connecting end, of an ipc:// or tcp://127.0.0.1: endpoint. Throws std::system_error.
  explicit ZmtpPeer(const std::string& endpoint);
  // The accepting end: of a connection that waits at `listener`.
  static ZmtpPeer accept(int listener);
  ~ZmtpPeer();
  ZmtpPeer(ZmtpPeer&& other) noexcept;
  ZmtpPeer(const ZmtpPeer&) = delete;
  ZmtpPeer& operator=(const ZmtpPeer&) = delete;

  // Greeting and READY of both ends, mechanism NULL. False when the other end has left.
  bool shake_hands(std::string_view socket_type);

  static std::string frame_bytes(std::string_view body);  // the last of a message
  static std::string ping_bytes();  // a heartbeat, which the other end answers at once

  // False when the other end has left, or does not read for 10 s.
  bool send_bytes(std::string_view bytes);
  bool send_frame(std::string_view body, bool more = false);
  // Only the frame's head: a body of this size is promised.
  bool send_frame_head(std::uint64_t size, bool more = false);

  // The next message's frames; absent when the other end has left or is silent for 10 s.
  std::optional<std::vector<std::string>> read_message();
  // True once the other end has left; false when it is still there after 10 s.
  bool wait_for_end();

  void close();
  int fd() const { return fd_; }

 private:
  explicit ZmtpPeer(int fd);
  std::optional<std::string> read_bytes(std::size_t size);

  int fd_ = -1;
};

// A listening ipc socket at `path`; the caller closes it.
int listen_at(const std::string& path);

}  // namespace batchmill
