// What hostile clients cost a server: one after another, many of each kind, against a JobServer in
// a process of its own. Prints its memory and how long another client waits for its answers
// meanwhile.
//   overload_soak [CONNECTIONS [NAME]]   (10,000; only the attacks whose names begin so)
#include <fmt/core.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <vector>

#include "queue/job_client.h"
#include "queue/job_server.h"
#include "tests/queue/zmtp_peer.h"

namespace batchmill {
namespace {

using Clock = std::chrono::steady_clock;
const std::string kHello = R"({"op":"hello","version":1})";

double resident_mb(pid_t process) {
  std::ifstream file(fmt::format("/proc/{}/statm", process));
  std::uint64_t total = 0, resident = 0;
  file >> total >> resident;
  return static_cast<double>(resident) * static_cast<double>(::sysconf(_SC_PAGESIZE)) / 1e6;
}

// The server's process: answers every request with the text it holds, until it is killed.
[[noreturn]] void serve(const QueueOptions& options, int ready) {
  std::unique_ptr<JobServer> server;
  std::atomic<bool> made = false;
  server = std::make_unique<JobServer>(
      options, "soak", [&](const PeerId& peer, const WireMessage& message) {
        while (!made) std::this_thread::yield();
        Json header = {{"op", "response"}, {"id", message.header.value("id", Json())}};
        server->send(peer, {std::move(header), message.header.value("text", ""), true});
      });
  made = true;
  const std::string endpoint = server->endpoints().back() + "\n";
  if (::write(ready, endpoint.data(), endpoint.size()) < 0) ::_exit(1);
  while (true) ::pause();
}

// Another client, which does nothing but ask and wait.
class Bystander {
 public:
  explicit Bystander(const std::string& endpoint)
      : thread_([this, endpoint](const std::stop_token& stop) {
          JobClient client(endpoint, "bystander");
          while (!stop.stop_requested()) {
            const auto begin = Clock::now();
            client.request({{"what", "echo"}}, std::chrono::seconds(60));
            waits_ms_.push_back(
                std::chrono::duration<double, std::milli>(Clock::now() - begin).count());
            std::this_thread::sleep_for(std::chrono::milliseconds(2));
          }
        }) {}
  std::string waits() {
    thread_.request_stop();
    thread_.join();
    std::ranges::sort(waits_ms_);
    const auto at = [&](double share) {
      return waits_ms_[static_cast<std::size_t>(share * static_cast<double>(waits_ms_.size() - 1))];
    };
    return fmt::format("{:6} answers, p50 {:6.1f} ms, p99 {:7.1f} ms, max {:7.1f} ms",
                       waits_ms_.size(), at(0.5), at(0.99), at(1.0));
  }

 private:
  std::vector<double> waits_ms_;
  std::jthread thread_;
};

using Peers = std::vector<std::unique_ptr<ZmtpPeer>>;

// A connection, if the server still takes one.
ZmtpPeer* add(Peers& peers, const std::string& endpoint) {
  try {
    peers.push_back(std::make_unique<ZmtpPeer>(endpoint));
    return peers.back().get();
  } catch (const std::system_error&) {
    return nullptr;
  }
}

ZmtpPeer* add_welcomed(Peers& peers, const std::string& endpoint) {
  ZmtpPeer* const peer = add(peers, endpoint);
  const bool good = peer != nullptr && peer->shake_hands("DEALER") && peer->send_frame(kHello) &&
                    peer->read_message();
  return good ? peer : nullptr;
}

int run(int connections, const std::string& only) {
  rlimit files{};
  ::getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &files);
  std::signal(SIGPIPE, SIG_IGN);
  const auto folder = std::filesystem::temp_directory_path() / fmt::format("soak_{}", ::getpid());
  std::filesystem::create_directories(folder);
  QueueOptions options;
  const std::string ipc = "ipc://" + (folder / "queue.sock").string();
  options.endpoints = {ipc, "tcp://127.0.0.1:*"};
  int pipe[2];
  if (::pipe(pipe) != 0) return 1;
  const pid_t server = ::fork();
  if (server == 0) serve(options, pipe[1]);
  std::string tcp(200, '\0');
  tcp.resize(static_cast<std::size_t>(std::max<ssize_t>(::read(pipe[0], tcp.data(), 200), 1)) - 1);

  const auto attack = [&](const char* name, const std::function<void(Peers&)>& act) {
    if (!std::string_view(name).starts_with(only)) return;
    const double before = resident_mb(server);
    std::atomic<double> peak = before;
    Bystander bystander(ipc);
    std::jthread watch([&](const std::stop_token& stop) {
      while (!stop.stop_requested()) {
        peak = std::max(peak.load(), resident_mb(server));
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
      }
    });
    const auto begin = Clock::now();
    {
      Peers peers;
      act(peers);
      std::this_thread::sleep_for(std::chrono::seconds(1));
    }
    const std::string waits = bystander.waits();
    std::this_thread::sleep_for(std::chrono::seconds(1));
    fmt::print("{:44} {:5.1f} s  {:6.1f} -> {:6.1f} -> {:6.1f} MB  {}\n", name,
               std::chrono::duration<double>(Clock::now() - begin).count() - 2, before, peak.load(),
               resident_mb(server), waits);
    std::fflush(stdout);
  };

  const std::string part((1 << 20) - 1, 'x');
  attack("nothing", [](Peers&) {});
  attack("connections that say nothing", [&](Peers& peers) {
    for (int i = 0; i < connections; ++i) add(peers, i % 2 == 0 ? ipc : tcp);
  });
  attack("connections after the handshake", [&](Peers& peers) {
    for (int i = 0; i < connections; ++i) {
      ZmtpPeer* const peer = add(peers, i % 2 == 0 ? ipc : tcp);
      if (peer != nullptr && peer->shake_hands("DEALER")) peer->send_frame(kHello);
    }
  });
  attack("garbage, one after another", [&](Peers& peers) {
    for (int i = 0; i < connections; ++i) {
      ZmtpPeer* const peer = add(peers, i % 2 == 0 ? ipc : tcp);
      if (peer != nullptr) peer->send_bytes(part.substr(0, 1000));
      peers.clear();
    }
  });
  attack("heads of 2 GB frames, 1,000 times", [&](Peers& peers) {
    for (int i = 0; i < 1'000; ++i) {
      if (ZmtpPeer* const peer = add_welcomed(peers, i % 2 == 0 ? ipc : tcp)) {
        peer->send_frame_head(2ull << 30);
      }
      peers.clear();
    }
  });
  attack("half a message of 1 MiB, 500 clients", [&](Peers& peers) {
    for (int i = 0; i < 500; ++i) {
      if (ZmtpPeer* const peer = add_welcomed(peers, i % 2 == 0 ? ipc : tcp)) {
        peer->send_frame_head(1 << 20);
        peer->send_bytes(part);
      }
    }
  });
  attack("parts without an end over tcp, 4 clients", [&](Peers& peers) {
    for (int i = 0; i < 4; ++i) {
      ZmtpPeer* const peer = add_welcomed(peers, tcp);
      while (peer != nullptr && peer->send_frame(part, true)) {
      }
    }
  });
  attack("asks and never reads, 100 clients", [&](Peers& peers) {
    for (int i = 0; i < 100; ++i) {
      ZmtpPeer* const peer = add_welcomed(peers, i % 2 == 0 ? ipc : tcp);
      const Json ask = {{"op", "request"}, {"id", "1"}, {"text", part.substr(0, 500'000)}};
      const std::string bytes = ask.dump();
      for (int n = 0; peer != nullptr && n < 200 && peer->send_frame(bytes); ++n) {
      }
    }
  });
  attack("the same request 100,000 times", [&](Peers& peers) {
    ZmtpPeer* const peer = add_welcomed(peers, ipc);
    for (int i = 0; peer != nullptr && i < 100'000; ++i) {
      if (!peer->send_frame(R"({"op":"request","id":"1","what":"echo"})")) break;
      if (i % 64 == 63) {
        for (int n = 0; n < 64; ++n) peer->read_message();
      }
    }
  });
  ::kill(server, SIGKILL);
  ::waitpid(server, nullptr, 0);
  std::filesystem::remove_all(folder);
  return 0;
}

}  // namespace
}  // namespace batchmill

int main(int argc, char** argv) {
  const int connections = argc > 1 ? std::atoi(argv[1]) : 10'000;
  return batchmill::run(connections, argc > 2 ? argv[2] : "");
}
