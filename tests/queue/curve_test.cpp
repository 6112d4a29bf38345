// Servers that ask for keys.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <future>
#include <string>

#include "queue/allowed_clients.h"
#include "queue/curve_keys.h"
#include "queue/job_client.h"
#include "tests/queue/memory_intake.h"

namespace batchmill {
namespace {

using std::chrono::milliseconds;
constexpr milliseconds kLong(30'000);

class CurveTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::path(::testing::TempDir()) / ("curve_" + std::to_string(::getpid()));
    std::filesystem::create_directories(folder_);
    options_.endpoints = {"ipc://" + (folder_ / "queue.sock").string(), "tcp://127.0.0.1:*"};
    options_.curve_secret_key_file = (folder_ / "server.key").string();
    options_.allowed_clients_file = (folder_ / "allowed").string();
    write_secret_key(options_.curve_secret_key_file, server_);
    allow(friend_.public_key, false);
    start();
  }
  void TearDown() override {
    server_end_.reset();
    std::filesystem::remove_all(folder_);
  }

  void start() {
    server_end_ = std::make_unique<JobServer>(
        options_, "test",
        [](JobServer& server, const PeerId& peer, const WireMessage& message) {
          Json header = {{"op", "response"}, {"id", message.header["id"]}};
          header["key"] = message.caller.key;
          header["admin"] = message.caller.admin;
          server.send(peer, {std::move(header), "", false});
        },
        [this](const std::string& what) { problem_.set_value(what); });
    tcp_ = server_end_->endpoints().back();
  }
  void allow(const std::string& key, bool admin) {
    edit_allowed_clients(options_.allowed_clients_file, [&](auto& clients) {
      Caller client;
      client.key = key;
      client.admin = admin;
      std::erase_if(clients, [&](const Caller& c) { return c.key == key; });
      clients.push_back(client);
    });
  }
  void revoke(const std::string& key) {
    edit_allowed_clients(options_.allowed_clients_file, [&](auto& clients) {
      std::erase_if(clients, [&](const Caller& c) { return c.key == key; });
    });
  }
  JobClient client_of(const CurveKeys& own) const {
    return JobClient(tcp_, "test", ClientKeys{server_.public_key, own});
  }
  static Json ask(JobClient& client, milliseconds timeout = kLong) {
    return client.request({{"what", "who"}}, timeout).header;
  }
  static std::string code_of(JobClient& client) {
    try {
      ask(client);
    } catch (const RemoteError& error) {
      return error.code();
    }
    return "";
  }
  // Where one end wants keys and the other does not, it is a matter of luck which of them sees it
  // first, and only that one knows.
  static std::string mismatch_of(JobClient& client) {
    try {
      ask(client, milliseconds(1000));
    } catch (const RemoteError& error) {
      return error.what();
    } catch (const UnreachableError& error) {
      return error.what();
    }
    return "";
  }

  std::filesystem::path folder_;
  QueueOptions options_;
  CurveKeys server_ = new_curve_keys(), friend_ = new_curve_keys(), stranger_ = new_curve_keys();
  std::promise<std::string> problem_;
  std::unique_ptr<JobServer> server_end_;
  std::string tcp_;
};

TEST_F(CurveTest, KnowsWhoAsks) {
  JobClient client = client_of(friend_);
  Json answer = ask(client);
  EXPECT_EQ(answer["key"], friend_.public_key);
  EXPECT_EQ(answer["admin"], false);
  // Its rights are those of now.
  allow(friend_.public_key, true);
  EXPECT_EQ(ask(client)["admin"], true);
  // The private socket is the operator's, without keys.
  JobClient local(options_.endpoints[0], "test");
  answer = ask(local);
  EXPECT_EQ(answer["key"], "");
  EXPECT_EQ(answer["admin"], true);
}

// The size limit is that of what is said, not of what travels.
TEST_F(CurveTest, TakesAFrameOfTheFullSize) {
  JobClient client = client_of(friend_);
  const Json request = {{"what", "who"}, {"text", std::string(kMaxHeaderBytes - 100, 'x')}};
  EXPECT_EQ(client.request(request, kLong).header["key"], friend_.public_key);
}

TEST_F(CurveTest, LetsNoStrangerIn) {
  JobClient stranger = client_of(stranger_);
  EXPECT_EQ(code_of(stranger), "not_allowed");
  // Allowed while the server runs.
  allow(stranger_.public_key, false);
  JobClient known = client_of(stranger_);
  EXPECT_EQ(ask(known)["key"], stranger_.public_key);
}

TEST_F(CurveTest, LetsNobodyInWithoutAKey) {
  JobClient plain(tcp_, "test");
  EXPECT_NE(mismatch_of(plain).find("--key FILE"), std::string::npos);
  JobClient misled(tcp_, "test", ClientKeys{stranger_.public_key, friend_});
  try {
    ask(misled, milliseconds(300));
    FAIL();
  } catch (const UnreachableError& error) {
    EXPECT_NE(std::string(error.what()).find("--server-key"), std::string::npos);
  }
}

TEST_F(CurveTest, TakesRightsAwayFromOpenConnections) {
  JobClient client = client_of(friend_), other = client_of(stranger_);
  allow(stranger_.public_key, false);
  ask(client);
  ask(other);
  revoke(friend_.public_key);
  EXPECT_EQ(code_of(client), "not_allowed");
  EXPECT_EQ(ask(other)["key"], stranger_.public_key);
}

TEST_F(CurveTest, CutsOffAClientThatIsSilent) {
  JobClient client = client_of(friend_);
  ask(client);
  revoke(friend_.public_key);
  JobClient local(options_.endpoints[0], "test");
  while (server_end_->counts().connections > 1) ask(local);
  EXPECT_EQ(code_of(client), "not_allowed");
}

TEST_F(CurveTest, SaysThatTheFileIsBroken) {
  JobClient client = client_of(friend_);
  std::ofstream(options_.allowed_clients_file) << "what?\n";
  std::future<std::string> problem = problem_.get_future();
  ASSERT_EQ(problem.wait_for(kLong), std::future_status::ready);
  EXPECT_NE(problem.get().find("line 1"), std::string::npos);
  EXPECT_EQ(ask(client)["key"], friend_.public_key);
}

TEST_F(CurveTest, AsksForNoKeysWithoutOneOfItsOwn) {
  server_end_.reset();
  options_.curve_secret_key_file.clear();
  start();
  JobClient with_keys = client_of(friend_);
  EXPECT_NE(mismatch_of(with_keys).find("--server-key"), std::string::npos);
  JobClient plain(tcp_, "test");
  EXPECT_EQ(ask(plain)["admin"], true);
}

TEST(CurveKeysTest, MakesNoPublicKeyThatLooksLikeAnOption) {
  for (int i = 0; i < 500; ++i) EXPECT_NE(new_curve_keys().public_key.front(), '-');
}

TEST_F(CurveTest, ServesOtherMachinesWithKeysOnly) {
  server_end_.reset();
  options_.curve_secret_key_file.clear();
  options_.endpoints.back() = "tcp://0.0.0.0:*";
  EXPECT_THROW(start(), std::runtime_error);
}

}  // namespace
}  // namespace batchmill
