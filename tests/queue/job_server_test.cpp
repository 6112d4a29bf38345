#include "queue/job_server.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <future>
#include <random>
#include <string>
#include <thread>
#include <vector>
#include <zmq.hpp>

#include "queue/socket_events.h"
#include "tests/queue/memory_intake.h"

namespace batchmill {
namespace {

constexpr int kDeadline_ms = 20'000;

// A client that sends whatever it is told to.
class RawPeer {
 public:
  explicit RawPeer(const std::string& endpoint, int receive_hwm = 1000)
      : socket_(context_, zmq::socket_type::dealer),
        events_(context_, socket_, ZMQ_EVENT_DISCONNECTED) {
    socket_.set(zmq::sockopt::linger, 0);
    socket_.set(zmq::sockopt::rcvhwm, receive_hwm);
    socket_.set(zmq::sockopt::rcvtimeo, kDeadline_ms);
    socket_.connect(endpoint);
  }

  void send(const std::vector<std::string>& frames) {
    for (std::size_t i = 0; i < frames.size(); ++i) {
      socket_.send(zmq::buffer(frames[i]),
                   i + 1 < frames.size() ? zmq::send_flags::sndmore : zmq::send_flags::none);
    }
  }

  Json receive() {
    zmq::message_t frame;
    if (!socket_.recv(frame)) return "nothing came";
    const Json header = Json::parse(frame.to_string_view(), nullptr, false);
    payload_bytes_ = 0;
    while (frame.more() && socket_.recv(frame)) payload_bytes_ += frame.size();
    return header;
  }

  Json ask(const std::vector<std::string>& frames) {
    send(frames);
    return receive();
  }

  bool wait_until_disconnected() {
    zmq::pollitem_t item = {events_.poll_handle(), 0, ZMQ_POLLIN, 0};
    return zmq::poll(&item, 1, std::chrono::milliseconds(kDeadline_ms)) == 1 &&
           events_.read().has_value();
  }

  std::size_t payload_bytes() const { return payload_bytes_; }

 private:
  zmq::context_t context_;
  zmq::socket_t socket_;
  SocketEvents events_;
  std::size_t payload_bytes_ = 0;
};

const std::string kHello = R"({"op":"hello","version":1,"client":"raw"})";
const std::string kEcho = R"({"op":"request","id":"1","what":"echo"})";

class JobServerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ =
        std::filesystem::path(::testing::TempDir()) / ("server_" + std::to_string(::getpid()));
    std::filesystem::create_directories(folder_);
    path_ = folder_ / "queue.sock";
    options_.endpoints = {"ipc://" + path_};
    options_.max_message_bytes = 2 << 20;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string bind_error() {
    try {
      JobServer server(options_, "test", [](JobServer&, const PeerId&, const WireMessage&) {});
    } catch (const std::runtime_error& error) {
      return error.what();
    }
    return "";
  }

  std::filesystem::path folder_;
  std::string path_;
  QueueOptions options_;
  MemoryDisk disk_;
};

TEST_F(JobServerTest, ShakesHands) {
  MemoryIntake intake(options_, disk_);
  RawPeer peer(options_.endpoints[0]);
  const Json welcome = peer.ask({R"({"op":"hello","version":1,"id":"h"})"});
  EXPECT_EQ(welcome["op"], "welcome");
  EXPECT_EQ(welcome["id"], "h");
  EXPECT_EQ(welcome["version"], 1);
  EXPECT_EQ(welcome["server"], "test");
  EXPECT_EQ(welcome["max_message_bytes"], options_.max_message_bytes);
  EXPECT_EQ(welcome["credit_bytes"], options_.credit_bytes);
  EXPECT_EQ(peer.ask({kEcho})["op"], "response");
  EXPECT_EQ(intake.server().counts().connections, 1);
  EXPECT_EQ(intake.server().counts().rejected, 0u);
}

TEST_F(JobServerTest, RefusesOtherVersionsAndStrangers) {
  MemoryIntake intake(options_, disk_);
  RawPeer peer(options_.endpoints[0]);
  for (const char* const hello :
       {R"({"op":"hello","version":2,"id":7})", R"({"op":"hello","id":7})",
        R"({"op":"hello","version":"1","id":7})"}) {
    const Json answer = peer.ask({hello});
    EXPECT_EQ(answer["code"], "unsupported_version") << hello;
    EXPECT_EQ(answer["id"], 7);
  }
  EXPECT_EQ(peer.ask({kEcho})["code"], "no_hello");
  EXPECT_EQ(intake.server().counts().rejected, 4u);
}

TEST_F(JobServerTest, AnswersGarbageAndGoesOn) {
  MemoryIntake intake(options_, disk_);
  RawPeer peer(options_.endpoints[0]);
  peer.ask({kHello});
  const std::vector<std::vector<std::string>> garbage = {
      {""},
      {"{"},
      {"\xff\xfe"},
      {"[]"},
      {"{}"},
      {"null"},
      {R"({"op":1})"},
      {std::string(3, '\0')},
      {kEcho, "", ""},
      {kEcho, "1", "2", "3", "4", "5"},
      {"", kEcho},
      {"{\"op\":\"" + std::string(kMaxHeaderBytes, 'x') + "\"}"},
      {"{\"op\":" + std::string(100'000, '[')}};
  for (const auto& frames : garbage) EXPECT_EQ(peer.ask(frames)["code"], "bad_message");
  EXPECT_EQ(intake.server().counts().rejected, garbage.size());
  EXPECT_EQ(peer.ask({kEcho})["op"], "response");

  std::mt19937 random(23);
  RawPeer noisy(options_.endpoints[0]);
  for (int i = 0; i < 500; ++i) {
    std::vector<std::string> frames(1 + random() % 4);
    for (std::string& frame : frames) {
      for (std::size_t n = random() % 40; n > 0; --n) frame.push_back(static_cast<char>(random()));
    }
    EXPECT_EQ(noisy.ask(frames)["op"], "error");
  }
  EXPECT_EQ(peer.ask({kEcho})["op"], "response");
}

TEST_F(JobServerTest, EndsTheConnectionOfAHugeFrame) {
  MemoryIntake intake(options_, disk_);
  RawPeer peer(options_.endpoints[0]), other(options_.endpoints[0]);
  peer.ask({kHello});
  other.ask({kHello});
  peer.send({R"({"op":"data"})", std::string(options_.max_message_bytes + 1, 'x')});
  EXPECT_TRUE(peer.wait_until_disconnected());
  EXPECT_EQ(other.ask({kEcho})["op"], "response");
  // libzmq connects again by itself; the server knows the new connection as a new peer.
  EXPECT_EQ(peer.ask({kEcho})["code"], "no_hello");
}

TEST_F(JobServerTest, LetsWaitWhoComesWhenAllPlacesAreTaken) {
  options_.max_connections = 2;
  MemoryIntake intake(options_, disk_);
  RawPeer one(options_.endpoints[0]), two(options_.endpoints[0]);
  EXPECT_EQ(one.ask({kHello})["op"], "welcome");
  EXPECT_EQ(two.ask({kHello})["op"], "welcome");
  RawPeer three(options_.endpoints[0]);
  three.send({kHello});
  EXPECT_EQ(one.ask({kHello})["op"], "welcome");
  while (intake.server().counts().waiting == 0) one.ask({kEcho});
  EXPECT_EQ(two.ask({kEcho})["op"], "response");
  two.send({R"({"op":"bye"})"});
  EXPECT_EQ(three.receive()["op"], "welcome");
}

TEST_F(JobServerTest, DropsAPeerThatNeverReadsAndServesOthers) {
  options_.max_outbox_bytes = 8 << 20;
  MemoryIntake intake(options_, disk_);
  RawPeer deaf(options_.endpoints[0], 1), other(options_.endpoints[0]);
  EXPECT_EQ(deaf.ask({kHello})["op"], "welcome");
  other.ask({kHello});
  Json request = Json::parse(kEcho);
  request["text"] = std::string(500'000, 'x');
  const std::string bytes = request.dump();
  while (intake.server().counts().dropped_peers == 0) {
    deaf.send({bytes});
    EXPECT_EQ(other.ask({kEcho})["op"], "response");
    if (HasFailure()) break;
  }
  EXPECT_EQ(other.ask({kEcho})["op"], "response");
}

TEST_F(JobServerTest, SendsFromManyThreadsInEachOnesOrder) {
  std::promise<PeerId> peer_id;
  JobServer server(options_, "test", [&](JobServer&, const PeerId& peer, const WireMessage&) {
    peer_id.set_value(peer);
  });
  RawPeer peer(options_.endpoints[0]);
  peer.ask({kHello});
  peer.send({kEcho});
  const PeerId id = peer_id.get_future().get();
  constexpr int kThreads = 4, kEach = 500;
  std::vector<std::jthread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kEach; ++i)
        server.send(id, {{{"op", "x"}, {"thread", t}, {"i", i}}, "", false});
    });
  }
  std::vector<int> next(kThreads, 0);
  for (int i = 0; i < kThreads * kEach; ++i) {
    const Json header = peer.receive();
    ASSERT_TRUE(header.is_object());
    ASSERT_EQ(header["i"], next[header["thread"]]++);
  }
}

TEST_F(JobServerTest, SendsWhatIsQueuedBeforeItEnds) {
  for (int round = 0; round < 20; ++round) {
    std::promise<PeerId> peer_id;
    auto server = std::make_unique<JobServer>(
        options_, "test",
        [&](JobServer&, const PeerId& peer, const WireMessage&) { peer_id.set_value(peer); });
    RawPeer peer(options_.endpoints[0]);
    peer.ask({kHello});
    peer.send({kEcho});
    const PeerId id = peer_id.get_future().get();
    for (int i = 0; i < 10; ++i) server->send(id, {{{"op", "x"}, {"i", i}}, "payload", true});
    server.reset();
    for (int i = 0; i < 10; ++i) ASSERT_EQ(peer.receive()["i"], i);
  }
}

TEST_F(JobServerTest, KeepsItsSocketPrivate) {
  const mode_t before = ::umask(0);
  MemoryIntake intake(options_, disk_);
  EXPECT_EQ(::umask(before), 0u);
  struct stat status = {};
  ASSERT_EQ(::stat(path_.c_str(), &status), 0);
  EXPECT_TRUE(S_ISSOCK(status.st_mode));
  EXPECT_EQ(status.st_mode & 0777, 0600u);
}

TEST_F(JobServerTest, ReplacesOnlyASocketThatIsDead) {
  {
    MemoryIntake intake(options_, disk_);
    EXPECT_NE(bind_error().find("served by another process"), std::string::npos);
    RawPeer peer(options_.endpoints[0]);
    EXPECT_EQ(peer.ask({kHello})["op"], "welcome");
    std::filesystem::create_hard_link(path_, path_ + ".left");
  }
  std::filesystem::rename(path_ + ".left", path_);
  MemoryIntake intake(options_, disk_);
  RawPeer peer(options_.endpoints[0]);
  EXPECT_EQ(peer.ask({kHello})["op"], "welcome");
}

TEST_F(JobServerTest, SaysWhyItCannotListen) {
  std::ofstream(path_) << "precious";
  EXPECT_NE(bind_error().find("is not a socket"), std::string::npos);
  EXPECT_EQ(std::filesystem::file_size(path_), 8u);
  for (const std::string& endpoint :
       {"ipc://" + std::string(108, 'x'), std::string("ipc://@abstract"), std::string("ipc://"),
        "ipc://" + (folder_ / "none" / "s").string(), std::string("tcp://127.0.0.1"),
        std::string("x")}) {
    options_.endpoints = {endpoint};
    EXPECT_NE(bind_error().find("cannot listen on " + endpoint), std::string::npos) << bind_error();
  }
}

}  // namespace
}  // namespace batchmill
