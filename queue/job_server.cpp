#include "queue/job_server.h"

#include <fmt/core.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <deque>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <system_error>
#include <thread>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <zmq.hpp>

#include "queue/allowed_clients.h"
#include "queue/curve_keys.h"
#include "queue/endpoint.h"
#include "queue/socket_events.h"
#include "queue/socket_path.h"
#include "queue/wake_up.h"
#include "queue/zap_handler.h"

namespace batchmill {
namespace {

constexpr int kMessagesInPipe = 16;  // per peer and direction, inside libzmq
constexpr int kMessagesPerTurn = 64;  // read before answers get their turn
// libzmq does not say when a full pipe has room again, so it is tried: soon, then less often.
constexpr int kFirstRetryMs = 1;
constexpr int kLastRetryMs = 50;
constexpr int kDrainTurns = 8;
constexpr int kLingerMs = 800;  // with the turns above: 1 s
constexpr int kHandshakeMs = 10'000;
constexpr int kHeartbeatMs = 10'000;
constexpr int kHeartbeatTimeoutMs = 30'000;
constexpr int kRefreshMs = 500;  // a look at the file of allowed clients while nothing happens

struct Outgoing {
  PeerId peer;
  std::string header;
  std::string payload;
  bool has_payload = false;

  std::uint64_t size() const { return header.size() + payload.size(); }
};

// The public key with which the sender of a frame has authenticated.
std::string user_of(const zmq::message_t& frame) {
  const char* const user = zmq_msg_gets(frame.handle(), "User-Id");
  return user == nullptr ? "" : user;
}

// Files made while it lives are the user's alone.
class PrivateUmask {
 public:
  PrivateUmask() : before_(::umask(077)) {}
  ~PrivateUmask() { ::umask(before_); }
  PrivateUmask(const PrivateUmask&) = delete;
  PrivateUmask& operator=(const PrivateUmask&) = delete;

 private:
  mode_t before_;
};

}  // namespace

class JobServer::Impl {
 public:
  Impl(QueueOptions options, std::string server_name, Handler handler, OnProblem on_problem)
      : options_(std::move(options)),
        server_name_(std::move(server_name)),
        handler_(std::move(handler)),
        on_problem_(std::move(on_problem)),
        router_(context_, zmq::socket_type::router) {
    router_.set(zmq::sockopt::router_mandatory, true);
    router_.set(zmq::sockopt::sndhwm, kMessagesInPipe);
    router_.set(zmq::sockopt::rcvhwm, kMessagesInPipe);
    router_.set(zmq::sockopt::handshake_ivl, kHandshakeMs);
    router_.set(zmq::sockopt::heartbeat_ivl, kHeartbeatMs);
    router_.set(zmq::sockopt::heartbeat_timeout, kHeartbeatTimeoutMs);
    router_.set(zmq::sockopt::linger, 0);
    router_.set(zmq::sockopt::maxmsgsize, static_cast<std::int64_t>(std::max<std::uint64_t>(
                                              options_.max_message_bytes, kMaxHeaderBytes)));
    events_.emplace(context_, router_,
                    ZMQ_EVENT_ACCEPTED | ZMQ_EVENT_DISCONNECTED | ZMQ_EVENT_CLOSED);
    if (asks_for_keys()) {
      allowed_.emplace(options_.allowed_clients_file);
      zap_.emplace(context_, [this](const std::string& key) { return allowed_->find(key); });
    }
    for (const std::string& endpoint : options_.endpoints) bind(endpoint);
    thread_ = std::jthread([this] { run(); });
  }

  ~Impl() {
    stopping_ = true;
    wake_up_.set();
    thread_.join();
    events_.reset();
    zap_.reset();
    router_.close();
    context_.close();  // waits for what lingers
  }

  void send(const PeerId& peer, WireMessage message) {
    Outgoing outgoing = {peer, encode_header(message.header), std::move(message.payload),
                         message.has_payload};
    {
      const std::lock_guard lock(mutex_);
      queue_.push_back(std::move(outgoing));
    }
    wake_up_.set();
  }

  Counts counts() const {
    return {messages_.load(), bytes_.load(), rejected_.load(), dropped_peers_.load(),
            connections_.load()};
  }

  const std::vector<std::string>& endpoints() const { return bound_; }

 private:
  struct Peer {
    std::deque<Outgoing> outbox;
    std::uint64_t outbox_bytes = 0;
    std::uint64_t last_heard = 0;  // number of its last message
    std::string key;  // with which it has authenticated; empty: it came through a local socket
    std::int32_t fd = -1;  // of its connection
  };

  bool asks_for_keys() const { return !options_.curve_secret_key_file.empty(); }

  void bind(const std::string& endpoint) {
    try {
      check_served_endpoint(endpoint, asks_for_keys());
      if (const auto path = socket_path(endpoint)) {
        remove_stale_socket(*path);
        const PrivateUmask umask;
        router_.bind(endpoint);
        if (::chmod(path->c_str(), 0600) != 0) {
          throw std::system_error(errno, std::generic_category(), *path);
        }
      } else {
        if (asks_for_keys()) ask_for_keys();
        router_.bind(endpoint);
        router_.set(zmq::sockopt::curve_server, false);
      }
    } catch (const zmq::error_t& error) {
      throw std::runtime_error(fmt::format("cannot listen on {}: {}", endpoint, error.what()));
    } catch (const std::exception& error) {
      throw std::runtime_error(fmt::format("cannot listen on {}: {}", endpoint, error.what()));
    }
    bound_.push_back(router_.get(zmq::sockopt::last_endpoint));
  }

  // Of those who connect to what is bound next.
  void ask_for_keys() {
    CurveKeys keys = read_secret_key(options_.curve_secret_key_file);
    router_.set(zmq::sockopt::curve_secretkey, keys.secret_key);
    ::explicit_bzero(keys.secret_key.data(), keys.secret_key.size());
    router_.set(zmq::sockopt::curve_server, true);
    router_.set(zmq::sockopt::zap_domain, std::string(ZapHandler::kDomain));
  }

  void run() {
    int drain_turns = 0;
    while (true) {
      const bool stopping = stopping_;
      const bool wait_forever = blocked_.empty() && !more_to_read_ && !stopping;
      zmq::pollitem_t items[] = {{router_.handle(), 0, ZMQ_POLLIN, 0},
                                 {events_->poll_handle(), 0, ZMQ_POLLIN, 0},
                                 {nullptr, wake_up_.fd(), ZMQ_POLLIN, 0},
                                 {zap_ ? zap_->poll_handle() : nullptr, 0, ZMQ_POLLIN, 0}};
      const int idle_ms = zap_ ? kRefreshMs : -1;
      zmq_poll(items, zap_ ? 4 : 3, wait_forever ? idle_ms : more_to_read_ ? 0 : retry_ms_);
      wake_up_.clear();
      read_events();
      // Before any message: a right that was taken away counts for none.
      refresh_allowed();
      if (zap_) zap_->answer();
      if (!stopping) read_messages();
      take_queue();
      flush_blocked();
      if (stopping && (blocked_.empty() || ++drain_turns > kDrainTurns)) break;
    }
    router_.set(zmq::sockopt::linger, kLingerMs);
  }

  void read_events() {
    while (const auto event = events_->read()) {
      if (event->kind == ZMQ_EVENT_ACCEPTED) {
        open_fds_.insert(event->value);
      } else {
        open_fds_.erase(event->value);
      }
      connections_ = static_cast<std::int32_t>(open_fds_.size());
    }
  }

  void refresh_allowed() {
    if (!allowed_) return;
    try {
      if (!allowed_->refresh()) return;
    } catch (const std::runtime_error& error) {
      if (on_problem_) on_problem_(fmt::format("{}; clients are allowed as before", error.what()));
      return;
    }
    std::vector<PeerId> revoked;
    for (const auto& [id, peer] : peers_) {
      if (!peer.key.empty() && allowed_->find(peer.key) == nullptr) revoked.push_back(id);
    }
    for (const PeerId& id : revoked) cut_off(id, peers_.at(id).fd);
  }

  // Ends the connection of a client that has no right to one any more.
  void cut_off(const PeerId& peer, std::int32_t fd) {
    forget(peer);
    if (open_fds_.contains(fd)) ::shutdown(fd, SHUT_RDWR);
  }

  void read_messages() {
    more_to_read_ = false;
    for (int i = 0; i < kMessagesPerTurn; ++i) {
      std::vector<zmq::message_t> frames(1);
      if (!router_.recv(frames[0], zmq::recv_flags::dontwait)) return;
      std::size_t count = 1;
      while (frames.back().more()) {
        if (frames.size() > 3) frames.pop_back();  // too many: only their number matters
        if (!router_.recv(frames.emplace_back())) return;
        ++count;
      }
      take_message(frames, count);
    }
    more_to_read_ = true;
  }

  void take_message(const std::vector<zmq::message_t>& frames, std::size_t count) {
    const PeerId peer = frames[0].to_string();
    ++messages_;
    for (const zmq::message_t& frame : frames) bytes_ += frame.size();
    if (count < 2 || count > 3) {
      return reject(peer, {}, "bad_message",
                    fmt::format("a message has a header frame and at most one payload frame, not "
                                "{} frames",
                                count - 1));
    }
    const std::string key = user_of(frames[1]);
    const Caller* const caller = key.empty() ? &operator_ : allowed_->find(key);
    const std::int32_t fd = zmq_msg_get(frames[1].handle(), ZMQ_SRCFD);
    if (caller == nullptr) {
      ++rejected_;
      return cut_off(peer, fd);
    }
    std::string why;
    std::optional<Json> header = decode_header(frames[1].to_string_view(), &why);
    if (!header) return reject(peer, {}, "bad_message", why);
    const std::string op = (*header)["op"];
    const auto known = peers_.find(peer);
    if (known != peers_.end()) known->second.last_heard = messages_;
    if (op == "hello") return welcome(peer, *header, key, fd);
    if (known == peers_.end()) {
      return reject(peer, *header, "no_hello", "the first message must be \"hello\"");
    }
    if (op == "bye") {
      forget(peer);
      return;
    }
    WireMessage message;
    message.header = std::move(*header);
    message.caller = *caller;
    message.has_payload = count == 3;
    if (message.has_payload) message.payload = frames[2].to_string();
    handler_(peer, std::move(message));
  }

  void welcome(const PeerId& peer, const Json& hello, const std::string& key, std::int32_t fd) {
    const auto version = hello.find("version");
    if (version == hello.end() || *version != kProtocolVersion) {
      return reject(
          peer, hello, "unsupported_version",
          fmt::format("this server speaks version {} of the protocol, the client {}",
                      kProtocolVersion,
                      version == hello.end() ? "names none" : "speaks " + version->dump()));
    }
    read_events();  // this peer's connection was counted before its first message came
    if (!peers_.contains(peer) && connections_ > options_.max_connections) {
      return reject(peer, hello, "too_many_connections",
                    fmt::format("{} clients are connected already", options_.max_connections));
    }
    Peer& welcomed = peers_[peer];
    welcomed.last_heard = messages_;
    welcomed.key = key;
    welcomed.fd = fd;
    forget_silent_peers();
    Json header = {{"op", "welcome"}, {"version", kProtocolVersion}};
    if (hello.contains("id")) header["id"] = hello["id"];
    header["max_message_bytes"] = options_.max_message_bytes;
    header["credit_bytes"] = options_.credit_bytes;
    header["server"] = server_name_;
    deliver({peer, encode_header(header), "", false});
  }

  void reject(const PeerId& peer, const Json& header, std::string_view code,
              const std::string& message) {
    ++rejected_;
    // Straight into the pipe: who does not read gets no outbox for this.
    transmit({peer, encode_header(error_header(header, code, message)), "", false});
  }

  void take_queue() {
    std::vector<Outgoing> queue;
    {
      const std::lock_guard lock(mutex_);
      queue.swap(queue_);
    }
    for (Outgoing& outgoing : queue) deliver(std::move(outgoing));
  }

  void deliver(Outgoing outgoing) {
    const auto found = peers_.find(outgoing.peer);
    if (found == peers_.end()) return;
    Peer& peer = found->second;
    if (peer.outbox.empty()) {
      const int error = transmit(outgoing);
      if (error == 0) return;
      if (error != EAGAIN) return forget(outgoing.peer);
    }
    peer.outbox_bytes += outgoing.size();
    if (peer.outbox_bytes > options_.max_outbox_bytes) {
      ++dropped_peers_;
      return forget(outgoing.peer);
    }
    if (blocked_.insert(outgoing.peer).second) retry_ms_ = kFirstRetryMs;
    peer.outbox.push_back(std::move(outgoing));
  }

  void flush_blocked() {
    retry_ms_ = std::min(retry_ms_ * 2, kLastRetryMs);
    for (auto it = blocked_.begin(); it != blocked_.end();) {
      Peer& peer = peers_.at(*it);
      int error = 0;
      while (!peer.outbox.empty() && (error = transmit(peer.outbox.front())) == 0) {
        peer.outbox_bytes -= peer.outbox.front().size();
        peer.outbox.pop_front();
        retry_ms_ = kFirstRetryMs;
      }
      if (error == EAGAIN) {
        ++it;
        continue;
      }
      if (error != 0) peers_.erase(*it);
      it = blocked_.erase(it);
    }
  }

  // 0, EAGAIN when the peer's pipe is full, EHOSTUNREACH when it is gone.
  int transmit(const Outgoing& outgoing) {
    try {
      const auto more = zmq::send_flags::sndmore | zmq::send_flags::dontwait;
      const auto last = zmq::send_flags::dontwait;
      if (!router_.send(zmq::buffer(outgoing.peer), more)) return EAGAIN;
      router_.send(zmq::buffer(outgoing.header), outgoing.has_payload ? more : last);
      if (outgoing.has_payload) router_.send(zmq::buffer(outgoing.payload), last);
      return 0;
    } catch (const zmq::error_t& error) {
      return error.num();
    }
  }

  void forget(PeerId peer) {
    blocked_.erase(peer);
    peers_.erase(peer);
  }

  // A ROUTER is not told when a peer leaves. Those unheard for longest go first; one that is still
  // there shakes hands again.
  void forget_silent_peers() {
    const std::size_t most = 4 * static_cast<std::size_t>(std::max(options_.max_connections, 16));
    if (peers_.size() <= most) return;
    std::vector<std::pair<std::uint64_t, PeerId>> by_age;
    for (const auto& [id, peer] : peers_) by_age.emplace_back(peer.last_heard, id);
    std::nth_element(by_age.begin(), by_age.begin() + by_age.size() / 2, by_age.end());
    by_age.resize(by_age.size() / 2);
    for (const auto& [heard, id] : by_age) forget(id);
  }

  QueueOptions options_;
  std::string server_name_;
  Handler handler_;
  OnProblem on_problem_;
  const Caller operator_;
  zmq::context_t context_;
  zmq::socket_t router_;
  std::optional<SocketEvents> events_;
  std::optional<ZapHandler> zap_;  // there if endpoints of tcp:// ask for keys
  std::optional<AllowedClients> allowed_;  // … and who has one
  WakeUp wake_up_;
  std::vector<std::string> bound_;

  std::mutex mutex_;
  std::vector<Outgoing> queue_;  // guarded by mutex_
  std::atomic<bool> stopping_ = false;
  std::atomic<std::uint64_t> messages_ = 0, bytes_ = 0, rejected_ = 0, dropped_peers_ = 0;
  std::atomic<std::int32_t> connections_ = 0;

  // The server's thread alone.
  std::unordered_map<PeerId, Peer> peers_;  // have shaken hands
  std::unordered_set<PeerId> blocked_;  // have something in their outbox
  std::unordered_set<std::int32_t> open_fds_;
  bool more_to_read_ = false;
  int retry_ms_ = kFirstRetryMs;

  std::jthread thread_;
};

JobServer::JobServer(QueueOptions options, std::string server_name, Handler handler,
                     OnProblem on_problem)
    : impl_(std::make_unique<Impl>(std::move(options), std::move(server_name), std::move(handler),
                                   std::move(on_problem))) {}

JobServer::~JobServer() = default;

void JobServer::send(const PeerId& peer, WireMessage message) {
  impl_->send(peer, std::move(message));
}

JobServer::Counts JobServer::counts() const { return impl_->counts(); }

const std::vector<std::string>& JobServer::endpoints() const { return impl_->endpoints(); }

}  // namespace batchmill
