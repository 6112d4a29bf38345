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
  // `server` is this one, for answers: it may be called before the owner has got the server from
  // its constructor, and after the owner has given it up.
  using Handler = std::function<void(JobServer& server, PeerId peer, WireMessage message)>;

  // Something that an operator should know; on the server's thread.
  using OnProblem = std::function<void(const std::string& what)>;

  // Binds; ipc sockets are made under umask 077 and a socket left by a dead process is replaced.
  // Endpoints of tcp:// ask for keys if the options name a secret key; others than loopback are
  // refused without (std::invalid_argument). Who may connect is read again whenever the file
  // changes; a client that is not in it any more is cut off. Throws std::runtime_error naming the
  // endpoint and the reason.
  JobServer(QueueOptions options, std::string server_name, Handler handler,
            OnProblem on_problem = nullptr);
  ~JobServer();  // stops and joins; messages queued by send() go out first, for at most 1 s

  // Queues a message for a peer; any thread. A peer that is gone or does not read is dropped after
  // its outbox exceeds a bound; nothing blocks.
  void send(const PeerId& peer, WireMessage message);

  struct Counts {
    std::uint64_t messages = 0;
    std::uint64_t bytes = 0;
    std::uint64_t rejected = 0;  // malformed, wrong version, no handshake, too many connections
    std::uint64_t dropped_peers = 0;  // did not read their outbox, or left a message unfinished
    std::int32_t connections = 0;
    std::int32_t served = 0;  // of these, have shaken hands
    std::int32_t waiting = 0;  // … or would, if fewer were served
  };
  Counts counts() const;

  // As bound: a port given as "*" is a number here.
  const std::vector<std::string>& endpoints() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace batchmill
