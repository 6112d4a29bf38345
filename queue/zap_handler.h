// Says to libzmq who may connect (ZAP, ZeroMQ RFC 27): by key, or without one where others cannot
// reach. Where it is asked, libzmq also refuses peers of before ZMTP 3, and with them most garbage,
// which would pass for such. Owned by a JobServer; its thread.
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

  // The public key that the sender of a frame was let in with; none: "".
  static std::string key_of(const zmq::message_t& frame);

  // Domains of sockets that ask for keys, and of those that do not.
  static constexpr const char* kWithKeys = "batchmill-keys";
  static constexpr const char* kWithoutKeys = "batchmill-local";

 private:
  std::function<bool(const std::string& key)> allowed_;
  zmq::socket_t socket_;
};

}  // namespace batchmill
