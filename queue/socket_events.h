// What libzmq tells of a socket's connections. Owned by who owns the socket, destroyed before it;
// one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <zmq.hpp>

namespace batchmill {

class SocketEvents {
 public:
  // `events`: ZMQ_EVENT_…, each with one value. Call it before the socket binds or connects. Throws
  // zmq::error_t.
  SocketEvents(zmq::context_t& context, zmq::socket_t& socket, int events);
  // libzmq's own thread waits, for good, for a reader of an event that it has begun to tell. So it
  // is told to stop before the reader goes away.
  ~SocketEvents();
  SocketEvents(const SocketEvents&) = delete;
  SocketEvents& operator=(const SocketEvents&) = delete;

  void* poll_handle() { return reader_.handle(); }  // for zmq_poll: ZMQ_POLLIN when there is one

  struct Event {
    int kind = 0;  // ZMQ_EVENT_…
    std::int32_t value = 0;  // a file descriptor, an error, a status: it depends on the kind
  };
  std::optional<Event> read();  // absent: there is none now

 private:
  zmq::socket_t& socket_;
  zmq::socket_t reader_;
};

}  // namespace batchmill
