// Makes a ROUTER listen: private sockets of ipc://, keys on tcp://. Used by a JobServer.
#pragma once

#include <string>
#include <zmq.hpp>

namespace batchmill {

// Binds and returns the endpoint as bound. With a `curve_secret_key_file`, who connects over tcp://
// is asked for a key (ZapHandler). Throws std::runtime_error naming the endpoint and the reason.
std::string listen(zmq::socket_t& router, const std::string& endpoint,
                   const std::string& curve_secret_key_file);

}  // namespace batchmill
