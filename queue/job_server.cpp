#include "queue/job_server.h"

#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
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
#include "queue/connections.h"
#include "queue/epoll_guard.h"
#include "queue/host_watch.h"
#include "queue/listener.h"
#include "queue/receipt.h"
#include "queue/socket_events.h"
#include "queue/wake_up.h"
#include "queue/zap_handler.h"

namespace batchmill {
namespace {

// Per peer, inside libzmq.
constexpr int kMessagesInPipe = 4;
constexpr int kAnswersInPipe = 2;
constexpr int kMessagesPerTurn = 64;  // read before answers get their turn
// libzmq does not say when a full pipe has room again, so it is tried: soon, then less often.
constexpr int kFirstRetryMs = 1;
constexpr int kLastRetryMs = 50;
constexpr int kDrainTurns = 8;
constexpr int kLingerMs = 800;  // with the turns above: 1 s
constexpr int kHandshakeMs = 10'000;
// Clients that may be connected without being served, until others leave.
constexpr std::size_t kMinWaiting = 16;
constexpr std::uint64_t kCurveBytes = 64;  // a frame that travels encrypted is longer, by 33 bytes
constexpr int kMaxOpenRequests = 1'000;  // of one peer
// What a message takes while it is being worked on, besides its payload: the header is a tree then.
constexpr std::uint64_t kMessageBytes = 1024;
constexpr std::uint64_t kHeaderFactor = 16;
// A message's header, and what the kernel has received and libzmq has not read yet.
constexpr std::uint64_t kUnfinishedSlackBytes = 16 << 20;
constexpr int kLookMs = 20;  // at connections of tcp:// while nothing happens
// … and while much does: seldom enough that looking at many takes little of the time.
constexpr std::uint32_t kMaxTurnsPerLook = 64;
constexpr std::size_t kLooksPerTurn = 32;
constexpr int kRefreshMs = 500;  // a look at the file of allowed clients while nothing happens

struct Outgoing {
  PeerId peer;
  std::string header;
  std::string payload;
  bool has_payload = false;

  std::uint64_t size() const { return header.size() + payload.size(); }
};

}  // namespace

class JobServer::Impl {
 public:
  Impl(JobServer* server, QueueOptions options, std::string server_name, Handler handler,
       OnProblem on_problem)
      : server_(server),
        options_(std::move(options)),
        server_name_(std::move(server_name)),
        handler_(std::move(handler)),
        on_problem_(std::move(on_problem)),
        connections_(max_served() + std::max(max_served(), kMinWaiting),
                     2 * options_.max_message_bytes + kUnfinishedSlackBytes),
        router_(context_, zmq::socket_type::router) {
    guard_epoll();
    router_.set(zmq::sockopt::router_mandatory, true);
    router_.set(zmq::sockopt::sndhwm, kAnswersInPipe);
    router_.set(zmq::sockopt::rcvhwm, kMessagesInPipe);
    router_.set(zmq::sockopt::handshake_ivl, kHandshakeMs);
    watch_host(router_);
    router_.set(zmq::sockopt::linger, 0);
    const std::uint64_t most_bytes =
        std::max<std::uint64_t>(options_.max_message_bytes, kMaxHeaderBytes);
    router_.set(zmq::sockopt::maxmsgsize,
                static_cast<std::int64_t>(most_bytes + (asks_for_keys() ? kCurveBytes : 0)));
    events_.emplace(context_, router_,
                    ZMQ_EVENT_ACCEPTED | ZMQ_EVENT_DISCONNECTED | ZMQ_EVENT_CLOSED);
    if (asks_for_keys()) allowed_.emplace(options_.allowed_clients_file);
    zap_.emplace(context_,
                 [this](const std::string& key) { return allowed_ && allowed_->find(key); });
    for (const std::string& endpoint : options_.endpoints) {
      bound_.push_back(listen(router_, endpoint, options_.curve_secret_key_file));
    }
  }

  // Once the server can be handed to the handler.
  void start() {
    thread_ = std::jthread([this] { run(); });
  }

  ~Impl() {
    stopping_ = true;
    workload_->wake_up.set();
    if (thread_.joinable()) thread_.join();
    events_.reset();
    zap_.reset();
    router_.close();
    context_.close();  // waits for what lingers
  }

  void send(const PeerId& peer, WireMessage message) {
    std::string header = encode_answer(&message);
    Outgoing outgoing = {peer, std::move(header), std::move(message.payload), message.has_payload};
    {
      const std::lock_guard lock(mutex_);
      queue_.push_back(std::move(outgoing));
    }
    workload_->wake_up.set();
  }

  Counts counts() const {
    return {messages_.load(),        bytes_.load(),  rejected_.load(),   dropped_peers_.load(),
            num_connections_.load(), served_.load(), num_waiting_.load()};
  }

  const std::vector<std::string>& endpoints() const { return bound_; }

 private:
  struct Peer {
    std::deque<Outgoing> outbox;
    std::uint64_t outbox_bytes = 0;
    std::string key;  // with which it has authenticated; empty: it came through a local socket
    std::int32_t fd = -1;  // of its connection
    std::shared_ptr<std::atomic<int>> open_requests = std::make_shared<std::atomic<int>>(0);
    std::shared_ptr<std::atomic<bool>> gone = std::make_shared<std::atomic<bool>>(false);
  };
  // A client that has said hello when as many as may be were served.
  struct Waiting {
    PeerId peer;
    Json hello;
    std::string key;
    std::int32_t fd = -1;
  };

  std::size_t max_served() const {
    return static_cast<std::size_t>(std::max(options_.max_connections, 1));
  }

  bool asks_for_keys() const { return !options_.curve_secret_key_file.empty(); }

  void run() {
    int drain_turns = 0;
    std::uint32_t turns = 0;
    while (true) {
      const bool stopping = stopping_;
      // What may be read waits where it is, and with it those who sent it.
      const bool full = workload_->bytes > options_.max_working_bytes;
      workload_->reading_waits = full;
      const bool still_full = full && workload_->bytes > options_.max_working_bytes;
      const bool read_at_once = more_to_read_ && !still_full;
      const bool wait_forever = blocked_.empty() && !read_at_once && !stopping;
      const auto wanted = static_cast<short>(still_full ? 0 : ZMQ_POLLIN);
      zmq::pollitem_t items[] = {{router_.handle(), 0, wanted, 0},
                                 {events_->poll_handle(), 0, ZMQ_POLLIN, 0},
                                 {nullptr, workload_->wake_up.fd(), ZMQ_POLLIN, 0},
                                 {zap_->poll_handle(), 0, ZMQ_POLLIN, 0}};
      const int idle_ms = connections_.num_tcp() != 0 ? kLookMs : allowed_ ? kRefreshMs : -1;
      const int timeout_ms = wait_forever ? idle_ms : read_at_once ? 0 : retry_ms_;
      const bool quiet = zmq_poll(items, 4, timeout_ms) == 0;
      workload_->wake_up.clear();
      read_events();
      // Before any message: a right that was taken away counts for none.
      refresh_allowed();
      zap_->answer();
      if (!stopping && !still_full) read_messages();
      if (quiet || ++turns >= turns_per_look()) {
        turns = 0;
        look_at_connections();
      }
      serve_waiting();
      take_queue();
      flush_blocked();
      if (stopping && (blocked_.empty() || ++drain_turns > kDrainTurns)) break;
    }
    router_.set(zmq::sockopt::linger, kLingerMs);
  }

  void read_events() {
    while (const auto event = events_->read()) {
      if (event->kind == ZMQ_EVENT_ACCEPTED) {
        connections_.opened(event->value);
      } else {
        connections_.closed(event->value);
        const auto peer = peer_of_fd_.find(event->value);
        if (peer != peer_of_fd_.end()) forget(PeerId(peer->second));
      }
      num_connections_ = static_cast<std::int32_t>(connections_.size());
    }
  }

  std::uint32_t turns_per_look() const {
    const std::size_t turns = connections_.num_tcp() / kLooksPerTurn;
    return std::min(static_cast<std::uint32_t>(turns) + 1, kMaxTurnsPerLook);
  }

  // Those that keep sending without an end. What has come whole was read before, or waits in the
  // pipe, and one more behind it.
  void look_at_connections() {
    const bool all_read = !more_to_read_ && !workload_->reading_waits;
    const std::uint64_t waiting_bytes = (kMessagesInPipe + 1) * 2 * options_.max_message_bytes;
    dropped_peers_ += connections_.end_unfinished(all_read ? 0 : waiting_bytes);
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
    connections_.end(fd);
  }

  void read_messages() {
    more_to_read_ = false;
    for (int i = 0; i < kMessagesPerTurn && workload_->bytes <= options_.max_working_bytes; ++i) {
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
    const std::int32_t fd = zmq_msg_get(frames.back().handle(), ZMQ_SRCFD);
    connections_.finished(fd);
    ++messages_;
    for (const zmq::message_t& frame : frames) bytes_ += frame.size();
    if (count < 2 || count > 3) {
      return reject(peer, {}, "bad_message",
                    fmt::format("a message has a header frame and at most one payload frame, not "
                                "{} frames",
                                count - 1));
    }
    const std::string key = ZapHandler::key_of(frames[1]);
    const Caller* const caller = key.empty() ? &operator_ : allowed_->find(key);
    if (caller == nullptr) {
      ++rejected_;
      return cut_off(peer, fd);
    }
    std::string why;
    std::optional<Json> header = decode_header(frames[1].to_string_view(), &why);
    if (!header) return reject(peer, {}, "bad_message", why);
    const std::string op = (*header)["op"];
    const auto known = peers_.find(peer);
    if (op == "hello") return greet({peer, std::move(*header), key, fd});
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
    message.sender_gone = known->second.gone;
    const bool is_request = op == "request";
    if (is_request && *known->second.open_requests >= kMaxOpenRequests) {
      return reject(
          peer, message.header, "too_many_requests",
          fmt::format("{} requests of this client wait for answers already", kMaxOpenRequests));
    }
    std::uint64_t size = kMessageBytes + kHeaderFactor * frames[1].size();
    if (count == 3) size += frames[2].size();
    message.receipt = std::make_shared<Receipt>(
        workload_, is_request ? known->second.open_requests : nullptr, size);
    message.has_payload = count == 3;
    if (message.has_payload) message.payload = frames[2].to_string();
    handler_(*server_, peer, std::move(message));
  }

  void greet(Waiting client) {
    const auto version = client.hello.find("version");
    if (version == client.hello.end() || *version != kProtocolVersion) {
      return reject(
          client.peer, client.hello, "unsupported_version",
          fmt::format("this server speaks version {} of the protocol, the client {}",
                      kProtocolVersion,
                      version == client.hello.end() ? "names none" : "speaks " + version->dump()));
    }
    // This connection's opening, and the end of the one that had its number before, are told before
    // its first message.
    read_events();
    std::erase_if(waiting_, [&](const Waiting& other) { return other.peer == client.peer; });
    if (peers_.contains(client.peer) || peers_.size() < max_served()) return welcome(client);
    peer_of_fd_[client.fd] = client.peer;
    waiting_.push_back(std::move(client));
    num_waiting_ = static_cast<std::int32_t>(waiting_.size());
  }

  void serve_waiting() {
    while (!waiting_.empty() && peers_.size() < max_served()) {
      const Waiting client = std::move(waiting_.front());
      waiting_.pop_front();
      welcome(client);
    }
    num_waiting_ = static_cast<std::int32_t>(waiting_.size());
  }

  void welcome(const Waiting& client) {
    Peer& welcomed = peers_[client.peer];
    welcomed.key = client.key;
    welcomed.fd = client.fd;
    peer_of_fd_[client.fd] = client.peer;
    served_ = static_cast<std::int32_t>(peers_.size());
    Json header = {{"op", "welcome"}, {"version", kProtocolVersion}};
    if (client.hello.contains("id")) header["id"] = client.hello["id"];
    header["max_message_bytes"] = options_.max_message_bytes;
    header["credit_bytes"] = options_.credit_bytes;
    header["server"] = server_name_;
    deliver({client.peer, encode_header(header), "", false});
  }

  void reject(const PeerId& peer, const Json& header, std::string_view code,
              const std::string& message) {
    ++rejected_;
    Outgoing answer = {peer, encode_header(error_header(header, code, message)), "", false};
    if (peers_.contains(peer)) return deliver(std::move(answer));
    // Straight into the pipe: a stranger who does not read gets no outbox for this.
    transmit(answer);
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
    outboxes_bytes_ += outgoing.size();
    if (blocked_.insert(outgoing.peer).second) retry_ms_ = kFirstRetryMs;
    const PeerId id = outgoing.peer;
    peer.outbox.push_back(std::move(outgoing));
    if (peer.outbox_bytes > options_.max_outbox_bytes) return drop(id);
    while (outboxes_bytes_ > options_.max_outboxes_bytes) drop(most_waited_for());
  }

  // The peer that reads least of what is sent to it.
  PeerId most_waited_for() const {
    return *std::ranges::max_element(blocked_, {},
                                     [&](const PeerId& id) { return peers_.at(id).outbox_bytes; });
  }

  void drop(const PeerId& peer) {
    ++dropped_peers_;
    cut_off(PeerId(peer), peers_.at(peer).fd);
  }

  void flush_blocked() {
    retry_ms_ = std::min(retry_ms_ * 2, kLastRetryMs);
    std::vector<PeerId> gone;
    for (auto it = blocked_.begin(); it != blocked_.end();) {
      Peer& peer = peers_.at(*it);
      int error = 0;
      while (!peer.outbox.empty() && (error = transmit(peer.outbox.front())) == 0) {
        peer.outbox_bytes -= peer.outbox.front().size();
        outboxes_bytes_ -= peer.outbox.front().size();
        peer.outbox.pop_front();
        retry_ms_ = kFirstRetryMs;
      }
      if (error != 0 && error != EAGAIN) gone.push_back(*it);
      it = error == EAGAIN ? std::next(it) : blocked_.erase(it);
    }
    for (const PeerId& peer : gone) forget(peer);
  }

  // 0, EAGAIN when the peer's pipe is full, EHOSTUNREACH when it is gone.
  int transmit(const Outgoing& outgoing) {
    try {
      const auto more = zmq::send_flags::sndmore | zmq::send_flags::dontwait;
      const auto last = zmq::send_flags::dontwait;
      if (!router_.send(zmq::buffer(outgoing.peer), more)) {
        // libzmq looks only now and then what its own thread has sent; asking for events makes it.
        static_cast<void>(router_.get(zmq::sockopt::events));
        if (!router_.send(zmq::buffer(outgoing.peer), more)) return EAGAIN;
      }
      router_.send(zmq::buffer(outgoing.header), outgoing.has_payload ? more : last);
      if (outgoing.has_payload) router_.send(zmq::buffer(outgoing.payload), last);
      return 0;
    } catch (const zmq::error_t& error) {
      return error.num();
    }
  }

  // It is served no more; with its connection, its place goes to one that waits.
  void forget(const PeerId& peer) {
    blocked_.erase(peer);
    if (const auto it = peers_.find(peer); it != peers_.end()) {
      *it->second.gone = true;
      outboxes_bytes_ -= it->second.outbox_bytes;
      peer_of_fd_.erase(it->second.fd);
      peers_.erase(it);
    }
    std::erase_if(waiting_, [&](const Waiting& client) {
      if (client.peer == peer) peer_of_fd_.erase(client.fd);
      return client.peer == peer;
    });
    served_ = static_cast<std::int32_t>(peers_.size());
    num_waiting_ = static_cast<std::int32_t>(waiting_.size());
  }

  JobServer* const server_;
  QueueOptions options_;
  std::string server_name_;
  Handler handler_;
  OnProblem on_problem_;
  const Caller operator_;
  Connections connections_;
  zmq::context_t context_;
  zmq::socket_t router_;
  std::optional<SocketEvents> events_;
  std::optional<AllowedClients> allowed_;  // there if endpoints of tcp:// ask for keys
  std::optional<ZapHandler> zap_;
  const std::shared_ptr<Workload> workload_ = std::make_shared<Workload>();
  std::vector<std::string> bound_;

  std::mutex mutex_;
  std::vector<Outgoing> queue_;  // guarded by mutex_
  std::atomic<bool> stopping_ = false;
  std::atomic<std::uint64_t> messages_ = 0, bytes_ = 0, rejected_ = 0, dropped_peers_ = 0;
  std::atomic<std::int32_t> num_connections_ = 0, served_ = 0, num_waiting_ = 0;

  // The server's thread alone.
  std::unordered_map<PeerId, Peer> peers_;  // have shaken hands
  std::unordered_set<PeerId> blocked_;  // have something in their outbox
  std::deque<Waiting> waiting_;
  std::unordered_map<std::int32_t, PeerId> peer_of_fd_;  // of peers and of those that wait
  std::uint64_t outboxes_bytes_ = 0;
  bool more_to_read_ = false;
  int retry_ms_ = kFirstRetryMs;

  std::jthread thread_;
};

JobServer::JobServer(QueueOptions options, std::string server_name, Handler handler,
                     OnProblem on_problem)
    : impl_(std::make_unique<Impl>(this, std::move(options), std::move(server_name),
                                   std::move(handler), std::move(on_problem))) {
  impl_->start();
}

JobServer::~JobServer() = default;

void JobServer::send(const PeerId& peer, WireMessage message) {
  impl_->send(peer, std::move(message));
}

JobServer::Counts JobServer::counts() const { return impl_->counts(); }

const std::vector<std::string>& JobServer::endpoints() const { return impl_->endpoints(); }

}  // namespace batchmill
