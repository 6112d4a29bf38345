#include "queue/socket_events.h"

#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <string>

namespace batchmill {
namespace {

// A name serves once: the last reader's goes only after a while.
std::string unused_address() {
  static std::atomic<std::uint64_t> count = 0;
  return fmt::format("inproc://events-{}", ++count);
}

}  // namespace

SocketEvents::SocketEvents(zmq::context_t& context, zmq::socket_t& socket, int events)
    : socket_(socket), reader_(context, zmq::socket_type::pair) {
  const std::string address = unused_address();
  if (zmq_socket_monitor(socket.handle(), address.c_str(), events) != 0) throw zmq::error_t();
  reader_.set(zmq::sockopt::linger, 0);
  reader_.set(zmq::sockopt::rcvhwm, 0);  // no number of events makes libzmq's thread wait
  reader_.connect(address);
}

SocketEvents::~SocketEvents() { zmq_socket_monitor(socket_.handle(), nullptr, 0); }

std::optional<SocketEvents::Event> SocketEvents::read() {
  zmq::message_t event, address;
  while (reader_.recv(event, zmq::recv_flags::dontwait)) {
    if (event.more() && !reader_.recv(address)) return std::nullopt;
    std::uint16_t kind = 0;
    Event read;
    if (event.size() < sizeof kind + sizeof read.value) continue;
    std::copy_n(event.data<char>(), sizeof kind, reinterpret_cast<char*>(&kind));
    std::copy_n(event.data<char>() + sizeof kind, sizeof read.value,
                reinterpret_cast<char*>(&read.value));
    read.kind = kind;
    return read;
  }
  return std::nullopt;
}

}  // namespace batchmill
