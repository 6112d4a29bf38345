// Ends the connections of peers whose machines are gone.
#pragma once

#include <zmq.hpp>

namespace batchmill {

// Before the socket binds or connects. The kernel asks over tcp:// whether the other machine is
// still there, and within 30 s notices that it is not. libzmq's own heartbeats are not used: they
// end the process when they are due on a connection that has just failed (its issues 3937, 4364).
void watch_host(zmq::socket_t& socket);

}  // namespace batchmill
