#include "tests/soak/hostile_clients.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <system_error>
#include <utility>
#include <vector>

#include "queue/wire.h"
#include "tests/queue/zmtp_peer.h"
#include "tests/soak/job_file.h"

namespace batchmill::testing {
namespace {

using std::chrono::milliseconds;

const std::string kHello = R"({"op":"hello","version":1})";
constexpr std::size_t kFrameBytes = 1 << 20;  // the largest that a daemon takes
constexpr milliseconds kStay{2'000};  // of those who are in the way by being there
constexpr milliseconds kByte{100};  // between the bytes of a slow client

using Peers = std::vector<std::unique_ptr<ZmtpPeer>>;

const std::string& endpoint_of(const Target& target, int number) {
  return number % 2 == 0 ? target.ipc : target.tcp;
}

void stay(const std::stop_token& stop, milliseconds time) {
  std::mutex mutex;
  std::condition_variable_any changed;
  std::unique_lock lock(mutex);
  changed.wait_for(lock, stop, time, [] { return false; });
}

// A connection; null when the daemon has no place for it.
std::unique_ptr<ZmtpPeer> connected(const std::string& endpoint) {
  try {
    return std::make_unique<ZmtpPeer>(endpoint);
  } catch (const std::system_error&) {
    return nullptr;
  }
}

// … that has been welcomed.
std::unique_ptr<ZmtpPeer> welcomed(const std::string& endpoint) {
  std::unique_ptr<ZmtpPeer> peer = connected(endpoint);
  const bool good = peer != nullptr && peer->shake_hands("DEALER") && peer->send_frame(kHello) &&
                    peer->read_message();
  return good ? std::move(peer) : nullptr;
}

// `share` of the connections, all welcomed; fewer when there is no place for more.
Peers welcomed_crowd(const Target& target, int share, const std::stop_token& stop) {
  Peers peers;
  for (int i = 0; i < std::max(target.connections / share, 2) && !stop.stop_requested(); ++i) {
    peers.push_back(welcomed(endpoint_of(target, i)));
    if (peers.back() == nullptr) {
      peers.pop_back();
      break;
    }
  }
  return peers;
}

// One at a time: this process may not open files for several.
std::mutex crowd_mutex;

void crowd_that_is_silent(const Target& target, std::uint64_t, const std::stop_token& stop) {
  const std::lock_guard lock(crowd_mutex);
  Peers peers;
  for (int i = 0; i < target.connections && !stop.stop_requested(); ++i) {
    peers.push_back(connected(endpoint_of(target, i)));
  }
  stay(stop, kStay);
}

void crowd_that_says_hello(const Target& target, std::uint64_t, const std::stop_token& stop) {
  const std::lock_guard lock(crowd_mutex);
  Peers peers;
  for (int i = 0; i < target.connections && !stop.stop_requested(); ++i) {
    peers.push_back(connected(endpoint_of(target, i)));
    ZmtpPeer* const peer = peers.back().get();
    if (peer != nullptr && peer->shake_hands("DEALER")) peer->send_frame(kHello);
  }
  stay(stop, kStay);
}

void garbage(const Target& target, std::uint64_t round, const std::stop_token& stop) {
  std::mt19937_64 random(round);
  std::string bytes(1'000, '\0');
  for (int i = 0; i < target.connections && !stop.stop_requested(); ++i) {
    for (char& byte : bytes) byte = static_cast<char>(random());
    const std::unique_ptr<ZmtpPeer> peer = connected(endpoint_of(target, i));
    if (peer == nullptr) continue;
    // At once, or within the handshake, or instead of a message.
    if (i % 4 == 1) peer->send_bytes(std::string("\xff\0\0\0\0\0\0\0\0\x7f\x03\0NULL", 16));
    if (i % 4 >= 2 && !peer->shake_hands("DEALER")) continue;
    if (i % 4 == 3) {
      peer->send_frame(bytes);
    } else {
      peer->send_bytes(bytes);
    }
  }
}

void messages_that_mean_nothing(const Target& target, std::uint64_t, const std::stop_token& stop) {
  static const std::array<std::string, 8> kMessages = {
      R"({"op":"hello","version":99})",
      R"({"op":"hello","version":"1"})",
      R"({"op":"request","id":"1","what":"list"})",
      R"({"op":"data","job":"batch_0","offset":0})",
      "\x80{]",
      "",
      "[1]",
      R"({"op":"end","job":7,"bytes":-1})"};
  for (int i = 0; i < target.connections / 100 && !stop.stop_requested(); ++i) {
    const std::unique_ptr<ZmtpPeer> peer = connected(endpoint_of(target, i));
    if (peer == nullptr || !peer->shake_hands("DEALER")) continue;
    for (const std::string& message : kMessages) {
      if (!peer->send_frame(message) || !peer->read_message()) break;
    }
  }
}

// The head of a frame of 2 GB, and as many of its bytes as are taken.
void frames_of_two_gigabytes(const Target& target, std::uint64_t, const std::stop_token& stop) {
  const std::string part(kFrameBytes, 'x');
  for (int i = 0; i < target.connections / 10 && !stop.stop_requested(); ++i) {
    const std::unique_ptr<ZmtpPeer> peer = welcomed(endpoint_of(target, i));
    if (peer == nullptr || !peer->send_frame_head(2ull << 30)) continue;
    for (std::uint64_t sent = 0; sent < (2ull << 30); sent += part.size()) {
      if (!peer->send_bytes(part)) break;
    }
  }
}

// All but the last byte of the largest message.
void half_messages(const Target& target, std::uint64_t, const std::stop_token& stop) {
  const Peers peers = welcomed_crowd(target, 50, stop);
  const std::string part(kFrameBytes - 1, 'x');
  for (const auto& peer : peers) {
    peer->send_frame(R"({"op":"data","job":"none","offset":0})", true);
    peer->send_frame_head(kFrameBytes);
    peer->send_bytes(part);
  }
  stay(stop, kStay);
}

// One byte now and then: of the greeting, and of a message.
void slow_clients(const Target& target, std::uint64_t, const std::stop_token& stop) {
  Peers peers = welcomed_crowd(target, 100, stop);
  for (const auto& peer : peers) peer->send_frame_head(kFrameBytes);
  for (int i = 0; i < target.connections / 100; ++i) {
    if (auto peer = connected(endpoint_of(target, i))) peers.push_back(std::move(peer));
  }
  for (int i = 0; i < 50 && !stop.stop_requested(); ++i) {
    for (const auto& peer : peers) peer->send_bytes(i == 0 ? "\xff" : std::string(1, '\0'));
    stay(stop, kByte);
  }
}

// Over tcp: libzmq collects the parts.
void messages_without_an_end(const Target& target, std::uint64_t, const std::stop_token& stop) {
  const std::string part(kFrameBytes, 'x');
  const std::unique_ptr<ZmtpPeer> peer = welcomed(target.tcp);
  while (peer != nullptr && !stop.stop_requested() && peer->send_frame(part, true)) {
  }
}

// Asks for results, again and again, and reads none.
void deaf_clients(const Target& target, std::uint64_t, const std::stop_token& stop) {
  const Peers peers = welcomed_crowd(target, 100, stop);
  const Json ask = {{"op", "request"},   {"id", 1},   {"what", "results"},
                    {"job", target.job}, {"from", 0}, {"side", "all"}};
  const std::string bytes = ask.dump();
  for (const auto& peer : peers) {
    for (int i = 0; i < 200 && !stop.stop_requested(); ++i) {
      if (!peer->send_frame(bytes)) break;
    }
  }
  stay(stop, kStay);
}

// An upload on a connection; absent when the daemon does not want it.
struct Upload {
  Json job;
  std::uint64_t offset = 0;
};
std::optional<Upload> open_upload(ZmtpPeer& peer, const std::string& key) {
  peer.send_frame(Json({{"op", "open"}, {"id", key}, {"key", key}}).dump());
  while (const auto answer = peer.read_message()) {
    const Json header = Json::parse(answer->front());
    if (header.value("id", Json()) != key) continue;  // of a message before
    if (header["op"] != "opened") break;
    return Upload{header["job"], header["offset"].get<std::uint64_t>()};
  }
  return std::nullopt;
}

bool send_data(ZmtpPeer& peer, const Upload& upload, std::uint64_t offset,
               const std::string& data) {
  const Json header = {{"op", "data"}, {"job", upload.job}, {"offset", offset}};
  return peer.send_frame(header.dump(), true) && peer.send_frame(data);
}

void lines_without_an_end(const Target& target, std::uint64_t round, const std::stop_token& stop) {
  const std::string part(kFrameBytes, 'x');
  const auto peer = welcomed(endpoint_of(target, static_cast<int>(round % 2)));
  if (peer == nullptr) return;
  const auto upload = open_upload(*peer, fmt::format("endless-{}", round % 5));
  for (std::uint64_t i = 0; upload && i < 40 && !stop.stop_requested(); ++i) {
    if (!send_data(*peer, *upload, upload->offset + i * part.size(), part)) break;
    if (!peer->read_message()) break;
  }
}

// Sends what its credit does not allow, and reads no answer.
void uploads_beyond_their_credit(const Target& target, std::uint64_t round,
                                 const std::stop_token& stop) {
  const std::string part(kFrameBytes, '\n');  // blank lines
  for (int i = 0; i < 4; ++i) {
    const auto peer = welcomed(endpoint_of(target, i));
    if (peer == nullptr) return;
    const auto upload = open_upload(*peer, fmt::format("greedy-{}-{}", round % 5, i));
    for (std::uint64_t n = 0; upload && n < 128 && !stop.stop_requested(); ++n) {
      if (!send_data(*peer, *upload, upload->offset + n * part.size(), part)) break;
    }
  }
}

// Begun and left, in the middle of a line.
void uploads_that_are_left(const Target& target, std::uint64_t, const std::stop_token& stop) {
  const JobFileOptions options{.num_lines = 2, .line_bytes = 1'000, .prefix = "a"};
  const std::string content = job_line(options, 1) + job_line(options, 2).substr(0, 500);
  for (int i = 0; i < target.connections / 50 && !stop.stop_requested(); ++i) {
    const auto peer = welcomed(endpoint_of(target, i));
    if (peer == nullptr) continue;
    const auto upload = open_upload(*peer, fmt::format("left-{}", i));
    if (upload) send_data(*peer, *upload, 0, content);
  }
}

// The same frames again and again.
void replays(const Target& target, std::uint64_t, const std::stop_token& stop) {
  const std::string line = replayed_line();
  const auto peer = welcomed(target.ipc);
  for (int i = 0; peer != nullptr && i < target.connections / 10 && !stop.stop_requested(); ++i) {
    const auto upload = open_upload(*peer, kReplayedKey);
    if (!upload) return;
    send_data(*peer, *upload, 0, line);
    peer->send_frame(Json({{"op", "end"}, {"job", upload->job}, {"bytes", line.size()}}).dump());
    for (int n = 0; n < 10; ++n) {
      peer->send_frame(R"({"op":"request","id":"r","what":"list","limit":1})");
    }
  }
}

// Gone while the daemon has not read all that was sent, heartbeats among it.
void heartbeats_of_the_gone(const Target& target, std::uint64_t, const std::stop_token& stop) {
  std::string flood;
  for (int i = 0; i < 500; ++i) {
    flood += ZmtpPeer::frame_bytes(R"({"op":"request","id":"p","what":"list","limit":1})");
    flood += ZmtpPeer::ping_bytes();
  }
  for (int i = 0; i < target.connections / 100 && !stop.stop_requested(); ++i) {
    const auto peer = welcomed(endpoint_of(target, i));
    if (peer != nullptr) peer->send_bytes(flood);
  }
}

constexpr HostileKind kKinds[] = {
    {"connections that say nothing", crowd_that_is_silent},
    {"connections that say hello and stay", crowd_that_says_hello},
    {"garbage, one connection after another", garbage},
    {"another version, no version, no meaning", messages_that_mean_nothing},
    {"frames of 2 GB", frames_of_two_gigabytes},
    {"half messages", half_messages},
    {"ten bytes a second", slow_clients},
    {"messages without an end", messages_without_an_end},
    {"ask for results and read nothing", deaf_clients},
    {"lines without an end", lines_without_an_end},
    {"uploads beyond their credit", uploads_beyond_their_credit},
    {"uploads begun and left", uploads_that_are_left},
    {"replays", replays},
    {"heartbeats of the gone", heartbeats_of_the_gone},
};

}  // namespace

std::span<const HostileKind> hostile_kinds() { return kKinds; }

std::string replayed_line() { return job_line({.num_lines = 1, .prefix = "replayed"}, 1); }

}  // namespace batchmill::testing
