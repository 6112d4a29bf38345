// Says to libzmq which keys may connect (ZAP, ZeroMQ RFC 27). Owned by a JobServer; its thread.
#pragma once

#include <functional>
#include <string>
#include <zmq.hpp>

namespace batchmill {

class ZapHandler {
 public:
  // `allowed`: whether this public key may connect. Binds at once: connections that come before the
  // first answer() wait.
  ZapHandler(zmq::context_t& context, std::function<bool(const std::string& key)> allowed);

  void* poll_handle() { return socket_.handle(); }  // for zmq_poll
  void answer();  // what has been asked so far

  // Sockets with keys belong to this domain.
  static constexpr const char* kDomain = "batchmill";

 private:
  std::function<bool(const std::string& key)> allowed_;
  zmq::socket_t socket_;
};

}  // namespace batchmill
