#include "queue/job_client.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <future>
#include <iterator>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "queue/content_hash.h"
#include "queue/input_stream.h"
#include "tests/queue/memory_intake.h"
#include "tests/queue/zmtp_peer.h"

namespace batchmill {
namespace {

using std::chrono::milliseconds;
constexpr milliseconds kLong(30'000);

class JobClientTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ =
        std::filesystem::path(::testing::TempDir()) / ("client_" + std::to_string(::getpid()));
    std::filesystem::create_directories(folder_);
    options_.endpoints = {"ipc://" + (folder_ / "queue.sock").string()};
    options_.max_line_bytes = 4096;
    options_.max_message_bytes = 8192;
    options_.credit_bytes = 16384;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  static std::string content_of(int lines) {
    std::string content;
    for (int i = 0; i < lines; ++i) content += std::to_string(i) + std::string(50, 'x') + "\n";
    return content;
  }

  static JobClient::Source source_of(const std::string& content) {
    return [&content](std::uint64_t offset, char* buffer, std::size_t size) {
      return offset >= content.size() ? 0 : content.copy(buffer, size, offset);
    };
  }

  static Json open_of(const std::string& key, const std::string& content) {
    ContentHasher hasher;
    hasher.update(content);
    return {{"key", key}, {"name", "n"}, {"content_hash", hasher.hex()}};
  }

  static void expect_stored(const MemoryDisk::Job& job, int lines) {
    ASSERT_EQ(job.lines.size(), static_cast<std::size_t>(lines));
    for (int i = 0; i < lines; ++i) {
      ASSERT_EQ(job.lines[static_cast<std::size_t>(i)], std::to_string(i) + std::string(50, 'x'));
    }
  }

  std::filesystem::path folder_;
  QueueOptions options_;
  MemoryDisk disk_;
};

TEST_F(JobClientTest, GetsAnswersOverIpcAndTcp) {
  options_.endpoints.push_back("tcp://127.0.0.1:*");
  MemoryIntake intake(options_, disk_);
  ASSERT_EQ(intake.server().endpoints().size(), 2u);
  for (const std::string& endpoint : intake.server().endpoints()) {
    JobClient client(endpoint, "test");
    const WireMessage answer = client.request({{"what", "echo"}, {"text", "héllo"}}, kLong);
    EXPECT_EQ(answer.header["op"], "response");
    EXPECT_EQ(answer.header["what"], "echo");
    EXPECT_TRUE(answer.has_payload);
    EXPECT_EQ(answer.payload, "héllo");
    try {
      client.request({{"what", "fail"}}, kLong);
      FAIL();
    } catch (const RemoteError& error) {
      EXPECT_EQ(error.code(), "no_such_job");
    }
    EXPECT_EQ(client.request({{"what", "again"}}, kLong).header["what"], "again");
  }
}

TEST_F(JobClientTest, SaysWhenNobodyAnswers) {
  for (const std::string& endpoint : {options_.endpoints[0], std::string("tcp://127.0.0.1:1")}) {
    JobClient client(endpoint, "test");
    try {
      client.request({{"what", "echo"}}, milliseconds(60));
      FAIL() << endpoint;
    } catch (const UnreachableError& error) {
      EXPECT_NE(std::string(error.what()).find(endpoint), std::string::npos);
    }
  }
}

TEST_F(JobClientTest, SaysWhatIsNoEndpoint) {
  for (const std::string& endpoint :
       {std::string("nonsense"), std::string("nonsense://x"), std::string("tcp://127.0.0.1"),
        std::string("ipc://"), "ipc://" + std::string(200, 'x')}) {
    JobClient client(endpoint, "test");
    try {
      client.request({{"what", "echo"}}, kLong);
      FAIL() << endpoint;
    } catch (const std::invalid_argument& error) {
      EXPECT_NE(std::string(error.what()).find(endpoint), std::string::npos);
    }
  }
}

TEST_F(JobClientTest, FindsAServerThatStartsLater) {
  JobClient client(options_.endpoints[0], "test");
  auto answer = std::async(std::launch::async, [&] {
    return client.request({{"what", "echo"}}, kLong);
  });
  MemoryIntake intake(options_, disk_);
  EXPECT_EQ(answer.get().header["what"], "echo");
}

TEST_F(JobClientTest, AsksAgainAfterARestart) {
  JobClient client(options_.endpoints[0], "test");
  for (int i = 0; i < 3; ++i) {
    MemoryIntake intake(options_, disk_);
    EXPECT_EQ(client.request({{"what", i}}, kLong).header["what"], i);
  }
}

TEST_F(JobClientTest, UploadsAJobWithinItsCredit) {
  const std::string content = content_of(3000);
  ASSERT_GT(content.size(), 5 * options_.credit_bytes);
  MemoryIntake intake(options_, disk_);
  JobClient client(options_.endpoints[0], "test");
  std::vector<std::uint64_t> acked;
  const auto result = client.upload(
      open_of("k", content), source_of(content),
      [&](std::uint64_t bytes) { acked.push_back(bytes); }, kLong);
  EXPECT_EQ(result.job, "job-k");
  EXPECT_EQ(result.lines, 3000u);
  EXPECT_FALSE(result.existed);
  expect_stored(disk_.job("k"), 3000);
  EXPECT_TRUE(std::is_sorted(acked.begin(), acked.end()));
  EXPECT_EQ(acked.back(), content.size());

  const auto again = client.upload(open_of("k", content), source_of(content), nullptr, kLong);
  EXPECT_TRUE(again.existed);
  EXPECT_EQ(again.lines, 3000u);
}

TEST_F(JobClientTest, UploadsALineLongerThanItsCredit) {
  const std::string content = "a\n" + std::string(10 * options_.credit_bytes, 'x') + "\nb";
  MemoryIntake intake(options_, disk_);
  JobClient client(options_.endpoints[0], "test");
  EXPECT_EQ(client.upload(open_of("k", content), source_of(content), nullptr, kLong).lines, 3u);
  EXPECT_EQ(disk_.job("k").lines[2], "b");
  EXPECT_EQ(disk_.job("k").lines[1].size(), 4096u);
}

// The server is killed after any number of messages, with lines stored that were never acked.
TEST_F(JobClientTest, GoesOnAfterARestartInMidUpload) {
  const std::string content = content_of(3000);  // 22 messages
  for (int deaf_after = 0; deaf_after < 12; ++deaf_after) {
    disk_.clear();
    JobClient client(options_.endpoints[0], "test");
    auto intake = std::make_unique<MemoryIntake>(options_, disk_, deaf_after);
    auto result = std::async(std::launch::async, [&] {
      return client.upload(open_of("k", content), source_of(content), nullptr, kLong);
    });
    intake->wait_until_deaf();
    intake.reset();
    intake = std::make_unique<MemoryIntake>(options_, disk_, deaf_after / 2 + 1);
    intake->wait_until_deaf();
    intake.reset();
    intake = std::make_unique<MemoryIntake>(options_, disk_);
    EXPECT_EQ(result.get().lines, 3000u);
    expect_stored(disk_.job("k"), 3000);
    EXPECT_TRUE(disk_.job("k").sealed);
  }
}

// A server that dies again and again, also while the client connects anew by itself and by libzmq.
TEST_F(JobClientTest, GetsItsAnswerAtLastFromAServerThatKeepsDying) {
  const std::string path = (folder_ / "queue.sock").string();
  const int listener = listen_at(path);
  std::atomic<bool> dying = true;
  std::jthread server([&] {
    std::minstd_rand random(7);
    for (int round = 0; round < 60; ++round) {
      ZmtpPeer peer = ZmtpPeer::accept(listener);
      const int patience = static_cast<int>(random() % 4);
      if (patience == 0 || !peer.shake_hands("ROUTER")) continue;
      if (patience == 1 || !peer.read_message()) continue;
      peer.send_frame(R"({"op":"welcome","version":1,"max_message_bytes":1024})");
      if (patience == 2 || !peer.read_message()) continue;
      peer.send_frame(R"({"op":"error","code":"no_hello","message":"who are you?"})");
    }
    dying = false;
    while (true) {
      ZmtpPeer peer = ZmtpPeer::accept(listener);
      if (!peer.shake_hands("ROUTER") || !peer.read_message()) continue;
      if (!peer.send_frame(R"({"op":"welcome","version":1,"max_message_bytes":1024})")) continue;
      const auto request = peer.read_message();
      if (!request) continue;
      Json answer = {{"op", "response"}, {"id", Json::parse(request->front())["id"]}};
      if (peer.send_frame(answer.dump()) && peer.wait_for_end()) return;
    }
  });
  {
    JobClient client("ipc://" + path, "test");
    EXPECT_EQ(client.request({{"what", "echo"}}, kLong).header["op"], "response");
    EXPECT_FALSE(dying);
  }
  server.join();
  ::close(listener);
}

// Whoever answers to nothing but hello has not answered, however often the client connects anew.
TEST_F(JobClientTest, GivesUpOnAServerThatOnlyGreets) {
  const std::string path = (folder_ / "queue.sock").string();
  const int listener = listen_at(path);
  std::atomic<bool> greets_only = true;
  std::jthread server([&] {
    for (int round = 0; round < 500; ++round) {
      ZmtpPeer peer = ZmtpPeer::accept(listener);
      if (!peer.shake_hands("ROUTER") || !peer.read_message()) continue;
      if (!peer.send_frame(R"({"op":"welcome","version":1,"max_message_bytes":1024})")) continue;
      const auto request = peer.read_message();
      if (!request || (greets_only && round < 499)) continue;
      Json answer = {{"op", "response"}, {"id", Json::parse(request->front())["id"]}};
      if (peer.send_frame(answer.dump()) && peer.wait_for_end()) return;
    }
  });
  {
    JobClient client("ipc://" + path, "test");
    EXPECT_THROW(client.request({{"what", "echo"}}, milliseconds(300)), UnreachableError);
  }
  greets_only = false;
  JobClient(("ipc://" + path), "test").request({{"what", "echo"}}, kLong);
  server.join();
  ::close(listener);
}

TEST_F(JobClientTest, SaysThatTheDaemonWentAwayAndNothingOfKeys) {
  const std::string path = (folder_ / "queue.sock").string();
  const int listener = listen_at(path);
  std::jthread server([&] {
    ZmtpPeer peer = ZmtpPeer::accept(listener);
    if (!peer.shake_hands("ROUTER") || !peer.read_message()) return;
    if (!peer.send_frame(R"({"op":"welcome","version":1,"max_message_bytes":1024})")) return;
    peer.read_message();
  });  // who comes back is let in by the system, and greeted by nobody
  JobClient client("ipc://" + path, "test");
  try {
    client.request({{"what", "echo"}}, milliseconds(300));
    FAIL() << "answered";
  } catch (const UnreachableError& error) {
    EXPECT_EQ(error.what(), "the daemon at ipc://" + path +
                                " went away, and none has come back within 0.3 s; what became of "
                                "the request is not known, asking again is safe");
  }
  server.join();
  ::close(listener);
}

TEST_F(JobClientTest, SaysThatAnAnswerIsNone) {
  const std::string path = (folder_ / "queue.sock").string();
  const int listener = listen_at(path);
  std::jthread server([&] {
    ZmtpPeer peer = ZmtpPeer::accept(listener);
    if (!peer.shake_hands("ROUTER") || !peer.read_message()) return;
    if (!peer.send_frame(R"({"op":"welcome","version":1,"max_message_bytes":1024})")) return;
    if (peer.read_message()) peer.send_frame("{" + std::string(kMaxHeaderBytes, ' ') + "}");
    peer.wait_for_end();
  });
  {
    JobClient client("ipc://" + path, "test");
    try {
      client.request({{"what", "echo"}}, kLong);
      FAIL();
    } catch (const RemoteError& error) {
      EXPECT_EQ(error.code(), "bad_answer");
    }
  }
  server.join();
  ::close(listener);
}

TEST_F(JobClientTest, HearsThatAnAnswerIsTooLong) {
  std::atomic<bool> long_payload = false;
  JobServer server(options_, "test", [&](JobServer& self, PeerId peer, WireMessage message) {
    WireMessage answer;
    answer.header = {{"op", "response"}, {"id", message.header["id"]}};
    answer.has_payload = long_payload;
    if (long_payload) {
      answer.payload.assign(kMaxAnswerBytes + 1, 'x');
    } else {
      answer.header["text"] = std::string(kMaxHeaderBytes, 'x');
    }
    self.send(peer, std::move(answer));
  });
  JobClient client(options_.endpoints[0], "test");
  for (const bool is_payload : {false, true}) {
    long_payload = is_payload;
    try {
      client.request({{"what", "echo"}}, kLong);
      FAIL();
    } catch (const RemoteError& error) {
      EXPECT_EQ(error.code(), "answer_too_large");
    }
  }
}

TEST_F(JobClientTest, RefusesARequestThatNoServerTakes) {
  MemoryIntake intake(options_, disk_);
  JobClient client(options_.endpoints[0], "test");
  EXPECT_THROW(client.request({{"what", std::string(kMaxHeaderBytes, 'x')}}, kLong),
               std::invalid_argument);
  EXPECT_EQ(client.request({{"what", "echo"}}, kLong).header["what"], "echo");
}

TEST_F(JobClientTest, TellsTheServerThatTheContentBroke) {
  const std::string content = content_of(200);
  const JobClient::Source broken = [&](std::uint64_t offset, char* buffer, std::size_t size) {
    if (offset >= content.size()) throw InputError("truncated_input", "cut at byte 7");
    return content.copy(buffer, size, offset);
  };
  MemoryIntake intake(options_, disk_);
  JobClient client(options_.endpoints[0], "test");
  try {
    client.upload({{"key", "k"}}, broken, nullptr, kLong);
    FAIL();
  } catch (const InputError& error) {
    EXPECT_EQ(error.code(), "truncated_input");
  }
  EXPECT_EQ(disk_.job("k").abort_code, "truncated_input");
  expect_stored(disk_.job("k"), 200);
}

TEST_F(JobClientTest, ReportsWhatTheServerRefuses) {
  MemoryIntake intake(options_, disk_);
  JobClient client(options_.endpoints[0], "test");
  const std::string nothing;
  const auto code = [&](const Json& open) -> std::string {
    try {
      client.upload(open, source_of(nothing), nullptr, kLong);
    } catch (const RemoteError& error) {
      return error.code();
    }
    return "";
  };
  EXPECT_EQ(code({{"key", "k"}}), "empty_file");
  EXPECT_EQ(code({{"name", "no key"}}), "invalid_request");
  EXPECT_EQ(code({{"key", "k"}, {"priority", 11}}), "invalid_request");
  EXPECT_EQ(code({{"key", "k"}, {"metadata", {{"a", 1}}}}), "invalid_request");
}

// The protocol is as README.md describes it, for those who write their own client.
TEST_F(JobClientTest, IsNotNeededToSpeakTheProtocol) {
  const char* const configured = std::getenv("BATCHMILL_PYTHON");
  const std::string python = configured != nullptr ? configured : "python3";
  if (std::system((python + " -c 'import zmq' 2>/dev/null").c_str()) != 0) {
    GTEST_SKIP() << "skipped: " << python << " has no zmq module (Debian: python3-zmq)";
  }
  const std::string content = content_of(700);
  ASSERT_GT(content.size(), 2 * options_.credit_bytes);
  std::ofstream(folder_ / "in.jsonl") << content;
  options_.max_message_bytes = 1 << 20;
  MemoryIntake intake(options_, disk_);
  const std::string command = python + " " BATCHMILL_SOURCE_DIR "/tests/queue/push_and_read.py " +
                              options_.endpoints[0] + " " + (folder_ / "in.jsonl").string() +
                              " > " + (folder_ / "out.jsonl").string();
  ASSERT_EQ(std::system(command.c_str()), 0);
  std::ifstream out(folder_ / "out.jsonl");
  const std::string printed((std::istreambuf_iterator<char>(out)), {});
  EXPECT_EQ(printed, content);
}

TEST_F(JobClientTest, GivesUpAfterSilence) {
  const std::string content = content_of(1000);
  MemoryIntake intake(options_, disk_, 3);
  JobClient client(options_.endpoints[0], "test");
  EXPECT_THROW(client.upload(open_of("k", content), source_of(content), nullptr, milliseconds(100)),
               UnreachableError);
}

}  // namespace
}  // namespace batchmill
