// Two hundred clients at once, and those that do what no client should: a whole daemon goes on,
// in bounded memory, and nobody else's job suffers.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <future>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "storage/data_directory.h"
#include "tests/actors/daemon_process.h"
#include "tests/actors/job_audit.h"
#include "tests/actors/test_client.h"
#include "tests/actors/test_daemon.h"
#include "tests/queue/zmtp_peer.h"
#include "tests/support/sanitized_build.h"

namespace batchmill::testing {
namespace {

using std::chrono::seconds;

constexpr int kNumClients = 200;
constexpr std::size_t kNumLines = 20;
constexpr std::uint64_t kMaxGrowthBytes = 256ull << 20;
const std::string kHello = R"({"op":"hello","version":1})";

class HostileClientsTest : public ::testing::Test {
 protected:
  HostileClientsTest()
      : daemon_({BATCHMILL_BIN "/scripted_daemon", "--data", data(), "--step-us", "0",
                 "--max-num-seqs", "64"}) {}

  std::string data() const { return directory_.path() + "/data"; }
  std::string endpoint() const { return DataDirectory::control_endpoint(data()); }

  // "VmRSS" or "VmHWM" of the daemon.
  std::uint64_t memory_bytes(const std::string& field) const {
    std::ifstream status(fmt::format("/proc/{}/status", daemon_.pid()));
    for (std::string line; std::getline(status, line);) {
      if (line.starts_with(field + ":")) return std::stoull(line.substr(field.size() + 1)) << 10;
    }
    return 0;
  }

  // A connection after its "welcome"; empty when the daemon does not take it now.
  std::unique_ptr<ZmtpPeer> welcomed() const {
    auto peer = std::make_unique<ZmtpPeer>(endpoint());
    const bool good =
        peer->shake_hands("DEALER") && peer->send_frame(kHello) && peer->read_message();
    return good ? std::move(peer) : nullptr;
  }

  // Does it again and again, beside the others, until the test is over.
  void attack(std::function<void(std::uint64_t round)> act) {
    attackers_.emplace_back([act = std::move(act)](const std::stop_token& stop) {
      for (std::uint64_t round = 0; !stop.stop_requested(); ++round) {
        try {
          act(round);
        } catch (const std::system_error&) {
          // The daemon has no place for it just now.
          std::this_thread::yield();
        }
      }
    });
  }

  static std::string lines() {
    std::string content;
    for (std::size_t i = 1; i <= kNumLines; ++i) {
      content += chat_line(fmt::format("line-{}", i), fmt::format("tell {}", i), 2);
    }
    return content;
  }

  TemporaryDirectory directory_;
  DaemonProcess daemon_;
  std::vector<std::unique_ptr<ZmtpPeer>> halves_;  // the attacker's
  std::vector<std::jthread> attackers_;
};

TEST_F(HostileClientsTest, CostNobodyElseAJobAndTheDaemonLittleMemory) {
  const std::uint64_t idle_bytes = memory_bytes("VmRSS");
  attack([&](std::uint64_t round) {  // garbage
    std::mt19937_64 random(round);
    std::string bytes(1'000, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random());
    ZmtpPeer(endpoint()).send_bytes(bytes);
  });
  attack([&](std::uint64_t round) {  // messages that mean nothing, and another version
    ZmtpPeer peer(endpoint());
    if (!peer.shake_hands("DEALER")) return;
    peer.send_frame(round % 2 == 0 ? R"({"op":"hello","version":99})" : "\x80{]");
    peer.read_message();
  });
  attack([&](std::uint64_t) {  // a frame of 2 GB
    if (const auto peer = welcomed()) {
      peer->send_frame_head(2ull << 30);
      peer->wait_for_end();
    }
  });
  attack([&](std::uint64_t) {  // half a message, from each of fifty
    if (halves_.size() == 50) halves_.clear();
    halves_.push_back(welcomed());
    if (halves_.back()) halves_.back()->send_frame_head(1 << 20);
    if (halves_.back()) halves_.back()->send_bytes(std::string(500'000, 'x'));
  });
  attack([&](std::uint64_t) {  // asks for much and reads nothing
    const auto peer = welcomed();
    for (int i = 0; peer && i < 1'000; ++i) {
      if (!peer->send_frame(R"({"op":"request","id":"1","what":"list"})")) break;
    }
  });
  attack([&](std::uint64_t round) {  // a line that never ends
    const auto peer = welcomed();
    if (!peer) return;
    peer->send_frame(
        Json({{"op", "open"}, {"id", "o"}, {"key", fmt::format("endless-{}", round % 5)}}).dump());
    const auto opened = peer->read_message();
    if (!opened) return;
    const Json header = Json::parse(opened->front());
    if (!header.contains("offset")) return;
    std::uint64_t offset = header["offset"].get<std::uint64_t>();
    for (int i = 0; i < 12; ++i, offset += 1'000'000) {
      const Json data = {{"op", "data"}, {"job", header["job"]}, {"offset", offset}};
      peer->send_frame(data.dump(), true);
      if (!peer->send_frame(std::string(1'000'000, 'x')) || !peer->read_message()) return;
    }
  });
  const std::string one = chat_line("line-1", "tell 1", 2);
  attack([&](std::uint64_t) {  // the same frames again
    const auto peer = welcomed();
    if (!peer) return;
    Json job;
    for (int i = 0; i < 10; ++i) {
      if (!peer->send_frame(R"({"op":"open","id":"o","key":"replayed"})")) return;
      for (auto answer = peer->read_message(); answer; answer = peer->read_message()) {
        const Json header = Json::parse(answer->front());
        if (header.value("id", "") != "o") continue;  // to one of the frames before
        job = header.value("job", Json());
        break;
      }
      peer->send_frame(Json({{"op", "data"}, {"job", job}, {"offset", 0}}).dump(), true);
      peer->send_frame(one);
      peer->send_frame(Json({{"op", "end"}, {"job", job}, {"bytes", one.size()}}).dump());
    }
  });

  std::vector<std::future<std::string>> uploads;
  for (int i = 0; i < kNumClients; ++i) {
    uploads.push_back(std::async(std::launch::async, [this, i] {
      return TestClient(endpoint()).submit(lines(), {{"key", fmt::format("client-{}", i)}});
    }));
  }
  TestClient client(endpoint());
  std::vector<std::string> jobs;
  for (auto& upload : uploads) jobs.push_back(upload.get());
  for (const std::string& job : jobs) {
    client.wait(job);
    expect_exact(client, job, kNumLines, 0);
  }
  const std::uint64_t growth_bytes = memory_bytes("VmHWM") - idle_bytes;
  fmt::print("{} MiB beyond idle{}\n", growth_bytes >> 20,
             kSanitizedBuild ? "; skipped: the limit, as a sanitizer keeps freed memory" : "");
  if (!kSanitizedBuild) {
    EXPECT_LE(growth_bytes, kMaxGrowthBytes);
  }
  attackers_.clear();
  halves_.clear();
  // What was replayed is one job of one line.
  const std::string replayed = client.submit(one, {{"key", "replayed"}});
  EXPECT_EQ(client.wait(replayed)["request_counts"],
            Json({{"total", 1}, {"completed", 1}, {"failed", 0}}));
  EXPECT_EQ(client.results(replayed).size(), 1u);
  daemon_.terminate();
  EXPECT_EQ(daemon_.wait(), 0);
  audit_store(data() + "/store");
}

}  // namespace
}  // namespace batchmill::testing
