// The ZeroMQ end of the daemon: one ROUTER socket on all endpoints, owned by one thread of its own.
// It speaks the transport (handshake, size limits, versions, garbage); what messages mean is the
// handler's business.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "queue/options.h"
#include "queue/wire.h"

namespace batchmill {

// A peer's routing id: opaque bytes, valid until the peer goes away.
using PeerId = std::string;

class JobServer {
 public:
  // Called on the server's thread for every well-formed message of a peer that has shaken hands
  // ("hello", "welcome" and "bye" are dealt with inside); must return quickly and not throw.
  // Answers go through send(). May be called before the constructor has returned.
  using Handler = std::function<void(PeerId peer, WireMessage message)>;

  // Binds; ipc sockets are made under umask 077 and a socket left by a dead process is replaced.
  // Throws std::runtime_error naming the endpoint and the reason.
  JobServer(QueueOptions options, std::string server_name, Handler handler);
  ~JobServer();  // stops and joins; messages queued by send() go out first, for at most 1 s

  // Queues a message for a peer; any thread. A peer that is gone or does not read is dropped after
  // its outbox exceeds a bound; nothing blocks.
  void send(const PeerId& peer, WireMessage message);

  struct Counts {
    std::uint64_t messages = 0;
    std::uint64_t bytes = 0;
    std::uint64_t rejected = 0;  // malformed, wrong version, no handshake, too many connections
    std::uint64_t dropped_peers = 0;  // did not read their outbox
    std::int32_t connections = 0;
  };
  Counts counts() const;

  // As bound: a port given as "*" is a number here.
  const std::vector<std::string>& endpoints() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace batchmill
