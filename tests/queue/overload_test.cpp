// Clients that cost more than they should: bounded memory, and nobody else notices.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "queue/curve_keys.h"
#include "queue/job_client.h"
#include "tests/queue/memory_intake.h"
#include "tests/queue/zmtp_peer.h"

namespace batchmill {
namespace {

using std::chrono::milliseconds;
constexpr milliseconds kLong(30'000);
const std::string kHello = R"({"op":"hello","version":1})";
const std::string kEcho = R"({"op":"request","id":"1","what":"echo"})";

std::uint64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  std::uint64_t total = 0, resident = 0;
  file >> total >> resident;
  return resident * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

class OverloadTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::path(::testing::TempDir()) / ("over_" + std::to_string(::getpid()));
    std::filesystem::create_directories(folder_);
    options_.endpoints = {"ipc://" + (folder_ / "queue.sock").string(), "tcp://127.0.0.1:*"};
  }
  void TearDown() override {
    intake_.reset();
    std::filesystem::remove_all(folder_);
  }

  void start() {
    intake_ = std::make_unique<MemoryIntake>(options_, disk_);
    endpoints_ = intake_->server().endpoints();
  }
  JobServer::Counts counts() const { return intake_->server().counts(); }
  // Somebody else's request is answered.
  void expect_service() {
    JobClient other(endpoints_[0], "other");
    EXPECT_EQ(other.request({{"what", "echo"}}, kLong).header["what"], "echo");
  }
  // Waits for something that the server does by itself, asking it all the while.
  template <class Holds>
  void wait_for(const Holds& holds) {
    JobClient other(endpoints_[0], "other");
    const auto end = std::chrono::steady_clock::now() + kLong;
    while (!holds() && std::chrono::steady_clock::now() < end) {
      other.request({{"what", "echo"}}, kLong);
    }
    EXPECT_TRUE(holds());
  }

  std::filesystem::path folder_;
  QueueOptions options_;
  MemoryDisk disk_;
  std::unique_ptr<MemoryIntake> intake_;
  std::vector<std::string> endpoints_;
};

TEST_F(OverloadTest, ServesThoseThatWaitWhenOthersLeave) {
  options_.max_connections = 2;
  start();
  auto first = std::make_unique<JobClient>(endpoints_[0], "1");
  JobClient second(endpoints_[1], "2");
  first->request({{"what", "echo"}}, kLong);
  second.request({{"what", "echo"}}, kLong);
  auto third = std::async(std::launch::async, [&] {
    JobClient client(endpoints_[0], "3");
    return client.request({{"what", "third"}}, kLong).header["what"] == "third";
  });
  while (counts().waiting == 0) second.request({{"what", "echo"}}, kLong);
  EXPECT_EQ(counts().served, 2);
  EXPECT_EQ(second.request({{"what", "echo"}}, kLong).header["what"], "echo");
  first.reset();
  EXPECT_TRUE(third.get());
  // One that leaves without a word makes room too.
  JobClient fourth(endpoints_[1], "4");
  EXPECT_EQ(fourth.request({{"what", "echo"}}, kLong).header["what"], "echo");
  {
    ZmtpPeer silent(endpoints_[0]);
    ASSERT_TRUE(silent.shake_hands("DEALER"));
    ASSERT_TRUE(silent.send_frame(kHello));
  }
  EXPECT_EQ(fourth.request({{"what", "echo"}}, kLong).header["what"], "echo");
}

TEST_F(OverloadTest, KeepsNoMoreConnectionsThanItMay) {
  options_.max_connections = 16;
  start();
  JobClient client(endpoints_[0], "first");
  client.request({{"what", "echo"}}, kLong);
  std::vector<std::unique_ptr<ZmtpPeer>> crowd;
  for (int i = 0; i < 500; ++i) {
    crowd.push_back(std::make_unique<ZmtpPeer>(endpoints_[static_cast<std::size_t>(i % 2)]));
  }
  // Half of them wait at most; the others are sent away.
  while (counts().connections > 32 || counts().connections < 32) {
    client.request({{"what", "echo"}}, kLong);
    if (HasFailure()) break;
  }
  EXPECT_TRUE(crowd.back()->wait_for_end());
  crowd.clear();
  while (counts().connections > 1) client.request({{"what", "echo"}}, kLong);
  expect_service();
}

TEST_F(OverloadTest, AFrameOfTwoGigabytesIsRefusedByItsHead) {
  start();
  for (const std::string& endpoint : endpoints_) {
    const std::uint64_t before = resident_bytes();
    ZmtpPeer peer(endpoint);
    ASSERT_TRUE(peer.shake_hands("DEALER"));
    ASSERT_TRUE(peer.send_frame(kHello));
    ASSERT_TRUE(peer.read_message());
    ASSERT_TRUE(peer.send_frame_head(2ull << 30));
    EXPECT_TRUE(peer.wait_for_end());
    EXPECT_LT(resident_bytes() - std::min(before, resident_bytes()), 16u << 20);
    expect_service();
  }
}

// libzmq would end the process: queue/epoll_guard.h.
TEST_F(OverloadTest, APeerMayLeaveWithHeartbeatsBehindAFullPipe) {
  start();
  std::string flood = ZmtpPeer::frame_bytes(kHello);
  for (int i = 0; i < 1'000; ++i) flood += ZmtpPeer::frame_bytes(kEcho) + ZmtpPeer::ping_bytes();
  for (std::size_t round = 0; round < 40; ++round) {
    ZmtpPeer peer(endpoints_[round % 2]);
    ASSERT_TRUE(peer.shake_hands("DEALER"));
    peer.send_bytes(flood);
  }
  expect_service();
  wait_for([&] { return counts().connections == 1; });
}

TEST_F(OverloadTest, GarbageEndsItsOwnConnectionOnly) {
  start();
  const std::string noise(100'000, '\xa5');
  for (int cut : {0, 1, 10, 11, 12, 63, 64}) {
    ZmtpPeer peer(endpoints_[static_cast<std::size_t>(cut % 2)]);
    std::string bytes("\xff\0\0\0\0\0\0\0\0\x7f\x03\0NULL", 16);
    bytes.resize(64, '\0');
    peer.send_bytes(bytes.substr(0, static_cast<std::size_t>(cut)) + noise);
  }
  for (const std::string& frame : {std::string("not json"), std::string(), noise,
                                   std::string(R"({"op":"request"})"), std::string("[1]")}) {
    ZmtpPeer peer(endpoints_[0]);
    ASSERT_TRUE(peer.shake_hands("DEALER"));
    ASSERT_TRUE(peer.send_frame(frame));
    const auto answer = peer.read_message();
    ASSERT_TRUE(answer) << frame.substr(0, 20);
    EXPECT_EQ(Json::parse(answer->front())["op"], "error");
  }
  expect_service();
}

// The parts of a message that never ends: libzmq would collect them all.
TEST_F(OverloadTest, EndsAMessageWithoutAnEnd) {
  start();
  ZmtpPeer peer(endpoints_[1]);
  ASSERT_TRUE(peer.shake_hands("DEALER"));
  ASSERT_TRUE(peer.send_frame(kHello));
  ASSERT_TRUE(peer.read_message());
  const std::uint64_t before = resident_bytes();
  const std::string part(1 << 20, 'x');
  std::uint64_t sent = 0;
  while (sent < (4ull << 30) && peer.send_frame(part, true)) sent += part.size();
  EXPECT_LT(sent, 4ull << 30);
  // The connection ends before the server's own count of it does.
  wait_for([&] { return counts().dropped_peers >= 1; });
  wait_for([&] { return resident_bytes() < before + (64u << 20); });
  ::testing::Test::RecordProperty("sent_bytes", std::to_string(sent));
  expect_service();
}

// … also while no message is read, because the handler has enough to do.
TEST_F(OverloadTest, EndsAMessageWithoutAnEndWhileReadingWaits) {
  options_.max_working_bytes = 1;
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<WireMessage> kept;
  JobServer server(options_, "stuck", [&](JobServer&, const PeerId&, WireMessage message) {
    const std::lock_guard lock(mutex);
    kept.push_back(std::move(message));
    changed.notify_all();
  });
  ZmtpPeer endless(server.endpoints()[1]);
  ZmtpPeer busy(server.endpoints()[0]);
  for (ZmtpPeer* const peer : {&endless, &busy}) {
    ASSERT_TRUE(peer->shake_hands("DEALER"));
    ASSERT_TRUE(peer->send_frame(kHello));
    ASSERT_TRUE(peer->read_message());
  }
  ASSERT_TRUE(busy.send_frame(kEcho));
  {
    std::unique_lock lock(mutex);
    ASSERT_TRUE(changed.wait_for(lock, kLong, [&] { return kept.size() == 1; }));
  }
  const std::string part(1 << 20, 'x');
  std::uint64_t sent = 0;
  while (sent < (2ull << 30) && endless.send_frame(part, true)) sent += part.size();
  EXPECT_LT(sent, 2ull << 30);
}

TEST_F(OverloadTest, BoundsTheRequestsOfOneClient) {
  // A handler that never comes to an end with a request.
  std::mutex mutex;
  std::vector<WireMessage> kept;
  JobServer server(options_, "stuck", [&](JobServer&, const PeerId&, WireMessage message) {
    const std::lock_guard lock(mutex);
    kept.push_back(std::move(message));
  });
  ZmtpPeer peer(server.endpoints()[0]);
  ASSERT_TRUE(peer.shake_hands("DEALER"));
  ASSERT_TRUE(peer.send_frame(kHello));
  ASSERT_TRUE(peer.read_message());
  for (int i = 0; i < 1001; ++i) ASSERT_TRUE(peer.send_frame(kEcho));
  const auto answer = peer.read_message();
  ASSERT_TRUE(answer);
  EXPECT_EQ(Json::parse(answer->front())["code"], "too_many_requests");
  const std::lock_guard lock(mutex);
  EXPECT_EQ(kept.size(), 1000u);
}

// When the handler is slow, what clients send stays with them; all of it comes through in the end.
TEST_F(OverloadTest, ReadsNoMoreThanIsBeingWorkedOn) {
  options_.max_working_bytes = 4 << 20;
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<WireMessage> kept;
  std::size_t most = 0, total = 0;
  JobServer server(options_, "slow", [&](JobServer&, const PeerId&, WireMessage message) {
    const std::lock_guard lock(mutex);
    kept.push_back(std::move(message));
    most = std::max(most, kept.size());
    ++total;
    changed.notify_all();
  });
  constexpr std::size_t kMessages = 200;
  const std::string payload(1 << 20, 'x');
  auto sender = std::async(std::launch::async, [&] {
    ZmtpPeer peer(server.endpoints()[0]);
    bool good = peer.shake_hands("DEALER") && peer.send_frame(kHello) && peer.read_message();
    for (std::size_t i = 0; good && i < kMessages; ++i) {
      good = peer.send_frame(R"({"op":"data"})", true) && peer.send_frame(payload);
    }
    peer.send_frame(kHello);
    return good && peer.read_message();
  });
  std::unique_lock lock(mutex);
  while (total < kMessages) {
    ASSERT_TRUE(changed.wait_for(lock, kLong, [&] { return !kept.empty(); }));
    // Let go as a slow worker does, one by one.
    WireMessage done = std::move(kept.back());
    kept.pop_back();
    lock.unlock();
    done = {};
    lock.lock();
  }
  lock.unlock();
  EXPECT_TRUE(sender.get());
  EXPECT_LE(most, 6u);
}

TEST_F(OverloadTest, DropsWhoeverReadsLeastWhenAllAnswersAreTooMany) {
  options_.max_outbox_bytes = 64 << 20;
  options_.max_outboxes_bytes = 8 << 20;
  start();
  Json request = Json::parse(kEcho);
  request["text"] = std::string(500'000, 'x');
  const std::string bytes = request.dump();
  std::vector<std::unique_ptr<ZmtpPeer>> deaf;
  for (int i = 0; i < 4; ++i) {
    deaf.push_back(std::make_unique<ZmtpPeer>(endpoints_[static_cast<std::size_t>(i % 2)]));
    ASSERT_TRUE(deaf.back()->shake_hands("DEALER"));
    ASSERT_TRUE(deaf.back()->send_frame(kHello));
  }
  while (counts().dropped_peers == 0) {
    for (auto& peer : deaf) peer->send_frame(bytes);
    expect_service();
    if (HasFailure()) break;
  }
}

// Two hundred clients at once, with credit for fewer: all wait for their turn, none is dropped.
TEST_F(OverloadTest, TakesTheJobsOfTwoHundredClients) {
  options_.max_connections = 50;
  options_.credit_bytes = 16384;
  start();
  std::vector<std::future<std::uint64_t>> results;
  for (int i = 0; i < 200; ++i) {
    results.push_back(std::async(std::launch::async, [this, i] {
      std::string content;
      for (int line = 0; line < 300; ++line)
        content += std::to_string(line) + std::string(99, 'x') + "\n";
      JobClient client(endpoints_[static_cast<std::size_t>(i % 2)], "one of many");
      return client
          .upload(
              {{"key", std::to_string(i)}},
              [&](std::uint64_t offset, char* buffer, std::size_t size) {
                return offset >= content.size() ? 0 : content.copy(buffer, size, offset);
              },
              nullptr, kLong)
          .lines;
    }));
  }
  for (auto& result : results) EXPECT_EQ(result.get(), 300u);
  EXPECT_EQ(disk_.num_jobs(), 200u);
  EXPECT_EQ(counts().dropped_peers, 0u);
}

// The same frames again and again change nothing.
TEST_F(OverloadTest, ReplaysChangeNothing) {
  start();
  ZmtpPeer peer(endpoints_[0]);
  ASSERT_TRUE(peer.shake_hands("DEALER"));
  ASSERT_TRUE(peer.send_frame(kHello));
  ASSERT_TRUE(peer.read_message());
  const auto send_all = [&] {
    for (const std::string& header : {std::string(R"({"op":"open","id":"o","key":"k"})"),
                                      std::string(R"({"op":"data","job":"job-k","offset":0})"),
                                      std::string(R"({"op":"end","job":"job-k","bytes":4})")}) {
      const bool data = header.find("data") != std::string::npos;
      ASSERT_TRUE(peer.send_frame(header, data));
      if (data) {
        ASSERT_TRUE(peer.send_frame("a\nb\n"));
      }
      ASSERT_TRUE(peer.read_message());
    }
  };
  for (int i = 0; i < 20; ++i) send_all();
  expect_service();
  EXPECT_EQ(disk_.job("k").lines, (std::vector<std::string>{"a", "b"}));
}

}  // namespace
}  // namespace batchmill
