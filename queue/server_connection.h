// A client's connection to a JobServer: handshake, reconnects, messages. Owned by a JobClient; one
// thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "queue/curve_keys.h"
#include "queue/deadline.h"
#include "queue/wire.h"

namespace batchmill {

class ServerConnection {
 public:
  // `keys`: for endpoints of tcp:// that ask for keys.
  ServerConnection(std::string endpoint, std::string client_name, std::optional<ClientKeys> keys);
  ~ServerConnection();

  // Connects and shakes hands unless that is done; true if it has just shaken hands. Throws
  // UnreachableError once `deadline` passes, RemoteError if the server refuses this client or its
  // key, std::invalid_argument if the endpoint is none.
  bool ensure_welcomed(Deadline& deadline);

  enum class Event {
    kMessage,  // *message was filled
    kLost,  // the server went away, or knows this client no more: shake hands again
    kWritable,  // try_send() may work now
    kNothing,  // nothing has happened (only without `wait`)
  };
  // Throws UnreachableError once `deadline` passes, RemoteError ("not_allowed"; "bad_answer": what
  // came is no message of this protocol). Which messages count as a sign of life is the caller's to
  // say: a server that greets each new connection may still never answer.
  Event next(WireMessage* message, Deadline& deadline, bool want_write, bool wait);

  // False when the server has not read enough of what was sent before. Throws
  // std::invalid_argument if the header is longer than a server takes.
  bool try_send(const Json& header);
  // Takes `payload` when it returns true: it travels without being copied.
  bool try_send(const Json& header, std::unique_ptr<char[]>* payload, std::size_t payload_bytes);

  std::uint64_t max_message_bytes() const { return max_message_bytes_; }
  const std::string& endpoint() const { return endpoint_; }

 private:
  struct Sockets;

  void connect();
  void back_off(Deadline& deadline);
  bool receive(WireMessage* message);
  Event take_event(int kind, std::int32_t value);
  [[noreturn]] void fail_unreachable(const Deadline& deadline) const;

  std::string endpoint_;
  std::string client_name_;
  std::optional<ClientKeys> keys_;
  std::unique_ptr<Sockets> sockets_;
  bool connected_ = false;  // the sockets have not lost their server
  bool welcomed_ = false;  // … and it knows this client
  bool was_welcomed_ = false;  // at some time
  bool handshake_failed_ = false;  // of ZeroMQ, below the protocol's: the keys may be wrong
  int backoff_ms_ = 0;
  std::uint64_t max_message_bytes_ = 0;
};

}  // namespace batchmill
