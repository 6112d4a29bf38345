#include "queue/server_connection.h"

#include <fmt/core.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <stdexcept>
#include <utility>
#include <zmq.hpp>

#include "queue/endpoint.h"
#include "queue/epoll_guard.h"
#include "queue/host_watch.h"
#include "queue/job_client.h"
#include "queue/socket_events.h"
#include "queue/socket_path.h"

namespace batchmill {
namespace {

constexpr int kMessagesInPipe = 16;
constexpr int kFirstBackoffMs = 10;
constexpr int kLastBackoffMs = 500;

}  // namespace

// One connection's sockets: a new one after every loss, so nothing sent to an earlier server is
// delivered to a later one.
struct ServerConnection::Sockets {
  zmq::context_t context;
  zmq::socket_t dealer;
  std::optional<SocketEvents> events;

  void close() {
    events.reset();
    if (dealer) dealer.close();
  }
};

ServerConnection::ServerConnection(std::string endpoint, std::string client_name,
                                   std::optional<ClientKeys> keys)
    : endpoint_(std::move(endpoint)),
      client_name_(std::move(client_name)),
      keys_(is_tcp(endpoint_) ? std::move(keys) : std::nullopt),
      sockets_(std::make_unique<Sockets>()) {}

ServerConnection::~ServerConnection() {
  if (welcomed_) {
    // The server forgets this client at once; if that does not reach it, it will anyway.
    sockets_->dealer.set(zmq::sockopt::linger, 100);
    try_send({{"op", "bye"}});
  }
  sockets_->close();
}

bool ServerConnection::ensure_welcomed(Deadline& deadline) {
  if (welcomed_) return false;
  WireMessage message;
  while (!welcomed_) {
    if (!connected_) {
      if (sockets_->dealer) back_off(deadline);
      connect();
    }
    if (next(&message, deadline, false, true) != Event::kMessage) continue;
    const std::string op = text_of(message.header, "op");
    if (op == "error") {
      throw RemoteError(text_of(message.header, "code"), text_of(message.header, "message"));
    }
    if (op != "welcome") continue;
    const auto limit = message.header.find("max_message_bytes");
    max_message_bytes_ = limit != message.header.end() && limit->is_number()
                             ? std::max<std::uint64_t>(limit->get<std::uint64_t>(), 1)
                             : kMaxHeaderBytes;
    welcomed_ = was_welcomed_ = true;
    handshake_failed_ = false;
    backoff_ms_ = 0;
  }
  return true;
}

void ServerConnection::connect() {
  sockets_->close();
  try {
    socket_path(endpoint_);  // a better message than libzmq's
  } catch (const std::exception& error) {
    throw std::invalid_argument(error.what());
  }
  try {
    guard_epoll();
    sockets_->dealer = zmq::socket_t(sockets_->context, zmq::socket_type::dealer);
    zmq::socket_t& dealer = sockets_->dealer;
    dealer.set(zmq::sockopt::linger, 0);
    dealer.set(zmq::sockopt::sndhwm, kMessagesInPipe);
    dealer.set(zmq::sockopt::reconnect_ivl, kFirstBackoffMs);
    dealer.set(zmq::sockopt::reconnect_ivl_max, kLastBackoffMs);
    watch_host(dealer);
    dealer.set(zmq::sockopt::maxmsgsize, static_cast<std::int64_t>(kMaxAnswerBytes));
    if (keys_) {
      dealer.set(zmq::sockopt::curve_serverkey, keys_->server_public_key);
      dealer.set(zmq::sockopt::curve_publickey, keys_->own.public_key);
      dealer.set(zmq::sockopt::curve_secretkey, keys_->own.secret_key);
    }
    sockets_->events.emplace(sockets_->context, dealer,
                             ZMQ_EVENT_DISCONNECTED | ZMQ_EVENT_HANDSHAKE_FAILED_AUTH |
                                 ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL |
                                 ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL);
    dealer.connect(endpoint_);
  } catch (const zmq::error_t& error) {
    sockets_->close();
    if (error.num() == EINVAL || error.num() == EPROTONOSUPPORT) {
      throw std::invalid_argument(fmt::format("{} is no endpoint: {}", endpoint_, error.what()));
    }
    throw UnreachableError(fmt::format("cannot connect to {}: {}", endpoint_, error.what()));
  }
  connected_ = true;
  // Waits inside libzmq until a server is there.
  try_send({{"op", "hello"}, {"version", kProtocolVersion}, {"client", client_name_}});
}

void ServerConnection::back_off(Deadline& deadline) {
  backoff_ms_ = std::clamp(backoff_ms_ * 2, kFirstBackoffMs, kLastBackoffMs);
  pollfd item = {deadline.fd(), POLLIN, 0};
  if (::poll(&item, 1, backoff_ms_) > 0) fail_unreachable(deadline);
}

ServerConnection::Event ServerConnection::next(WireMessage* message, Deadline& deadline,
                                               bool want_write, bool wait) {
  while (true) {
    const auto wanted = static_cast<short>(want_write ? ZMQ_POLLIN | ZMQ_POLLOUT : ZMQ_POLLIN);
    zmq::pollitem_t items[] = {{sockets_->dealer.handle(), 0, wanted, 0},
                               {sockets_->events->poll_handle(), 0, ZMQ_POLLIN, 0},
                               {nullptr, deadline.fd(), ZMQ_POLLIN, 0}};
    zmq_poll(items, 3, wait ? -1 : 0);
    // What arrived counts first, even if the server has left since.
    if ((items[0].revents & ZMQ_POLLIN) != 0) {
      if (!receive(message)) continue;
      if (text_of(message->header, "code") != "no_hello") return Event::kMessage;
      welcomed_ = connected_ = false;
      return Event::kLost;
    }
    if (items[1].revents != 0) {
      const auto event = sockets_->events->read();
      if (event && take_event(event->kind, event->value) == Event::kLost) return Event::kLost;
      continue;
    }
    if (items[2].revents != 0) fail_unreachable(deadline);
    if ((items[0].revents & ZMQ_POLLOUT) != 0) return Event::kWritable;
    if (!wait) return Event::kNothing;
  }
}

ServerConnection::Event ServerConnection::take_event(int kind, std::int32_t value) {
  const std::string_view refused = "not_allowed";
  switch (kind) {
    case ZMQ_EVENT_HANDSHAKE_FAILED_AUTH:
      throw RemoteError(std::string(refused),
                        fmt::format("{} does not know this key: `batchmill keys allow '{}'` there",
                                    endpoint_, keys_ ? keys_->own.public_key : "KEY"));
    case ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL:
      if (value == ZMQ_PROTOCOL_ERROR_ZMTP_MECHANISM_MISMATCH) {
        throw RemoteError(std::string(refused),
                          endpoint_ + (keys_ ? " asks for no keys: leave out --key and --server-key"
                                             : " asks for a key: --key FILE --server-key 'KEY'"));
      }
      [[fallthrough]];
    case ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL:
      handshake_failed_ = true;
      return Event::kNothing;  // the loss of the connection is told next
    default:
      welcomed_ = connected_ = false;
      return Event::kLost;
  }
}

// False when there is none after all.
bool ServerConnection::receive(WireMessage* message) {
  zmq::message_t header, payload;
  if (!sockets_->dealer.recv(header, zmq::recv_flags::dontwait)) return false;
  message->has_payload = header.more();
  message->payload.clear();
  for (bool more = header.more(); more; more = payload.more()) {
    if (!sockets_->dealer.recv(payload)) return false;
    message->payload.assign(payload.data<char>(), payload.size());
  }
  std::string why;
  std::optional<Json> decoded = decode_header(header.to_string_view(), &why);
  if (!decoded) throw RemoteError("bad_answer", endpoint_ + " answers with no message: " + why);
  message->header = std::move(*decoded);
  return true;
}

bool ServerConnection::try_send(const Json& header) {
  const std::string bytes = encode_header(header);
  if (bytes.size() > kMaxHeaderBytes) {
    throw std::invalid_argument(fmt::format(
        "a request of {} bytes is too long, at most {} are taken", bytes.size(), kMaxHeaderBytes));
  }
  return sockets_->dealer.send(zmq::buffer(bytes), zmq::send_flags::dontwait).has_value();
}

bool ServerConnection::try_send(const Json& header, std::unique_ptr<char[]>* payload,
                                std::size_t payload_bytes) {
  const std::string bytes = encode_header(header);
  const auto more = zmq::send_flags::sndmore | zmq::send_flags::dontwait;
  if (!sockets_->dealer.send(zmq::buffer(bytes), more)) return false;
  // With its first frame libzmq has taken the message: it waits for no other.
  const auto free = [](void* data, void*) { delete[] static_cast<char*>(data); };
  zmq::message_t frame(payload->release(), payload_bytes, free);
  return sockets_->dealer.send(frame, zmq::send_flags::none).has_value();
}

void ServerConnection::fail_unreachable(const Deadline& deadline) const {
  const double span_s = static_cast<double>(deadline.span().count()) / 1000.0;
  if (was_welcomed_ && !welcomed_) {
    throw UnreachableError(
        fmt::format("the daemon at {} went away, and none has come back within "
                    "{:.3g} s",
                    endpoint_, span_s));
  }
  // Only endpoints of tcp:// may ask for keys.
  const bool may_be_keys = handshake_failed_ && is_tcp(endpoint_);
  throw UnreachableError(fmt::format(
      "no answer from {} within {:.3g} s{}", endpoint_, span_s,
      !may_be_keys ? ""
      : keys_ ? ": the handshake fails; is --server-key the daemon's, and does it ask for keys?"
              : ": the handshake fails; does it ask for a key (--key FILE --server-key 'KEY')?"));
}

}  // namespace batchmill
