// Clients with keys of their own: what each may see and do, and how much it may send.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "queue/allowed_clients.h"
#include "queue/curve_keys.h"
#include "tests/actors/test_daemon.h"

namespace batchmill::testing {
namespace {

// A port that was free a moment ago.
std::string local_endpoint() {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  ::bind(fd, reinterpret_cast<sockaddr*>(&address), size);
  ::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size);
  ::close(fd);
  return "tcp://127.0.0.1:" + std::to_string(ntohs(address.sin_port));
}

std::string job_of(int num_lines, int max_tokens = 4) {
  std::string content;
  for (int i = 0; i < num_lines; ++i) {
    content += chat_line("l" + std::to_string(i), "hello", max_tokens);
  }
  return content;
}

class AccessTest : public ::testing::Test {
 protected:
  void SetUp() override {
    QueueOptions& queue = daemon_.options().queue;
    queue.endpoints = {local_endpoint()};
    queue.curve_secret_key_file = files_.path() + "/server.key";
    queue.allowed_clients_file = files_.path() + "/allowed";
    write_secret_key(queue.curve_secret_key_file, server_);
    for (const char* name : {"ann", "bob", "root"}) {
      keys_[name] = new_curve_keys();
      allow(name, [&](Caller& client) { client.admin = client.name == "root"; });
    }
    daemon_.options().before_step = [this](std::int64_t) { const std::lock_guard wait(steps_); };
    daemon_.start();
  }

  void allow(const std::string& name, const std::function<void(Caller&)>& set) {
    edit_allowed_clients(daemon_.options().queue.allowed_clients_file, [&](auto& clients) {
      std::erase_if(clients, [&](const Caller& c) { return c.name == name; });
      Caller client;
      client.key = keys_[name].public_key;
      client.name = name;
      client.admin = false;
      set(client);
      clients.push_back(client);
    });
  }
  TestClient client(const std::string& name) {
    return TestClient(daemon_.options().queue.endpoints[0],
                      ClientKeys{server_.public_key, keys_[name]});
  }
  static std::string refusal(const std::function<void()>& action) {
    try {
      action();
    } catch (const RemoteError& error) {
      return error.code();
    }
    return "";
  }

  TemporaryDirectory files_;
  CurveKeys server_ = new_curve_keys();
  std::map<std::string, CurveKeys> keys_;
  std::mutex steps_;  // the device waits for it before each step
  TestDaemon daemon_;
};

TEST_F(AccessTest, AKeySeesItsOwnJobsAndAnAdminAll) {
  std::map<std::string, std::string> jobs;
  for (const std::string& name : {std::string("ann"), std::string("bob")}) {
    TestClient own = client(name);
    jobs[name] = own.submit(job_of(3), {{"key", "nightly"}});
    own.wait(jobs[name]);
  }
  jobs[""] = daemon_.submit(job_of(3), {{"key", "nightly"}});
  daemon_.wait(jobs[""]);
  EXPECT_NE(jobs["ann"], jobs["bob"]);
  EXPECT_NE(jobs["ann"], jobs[""]);

  // The same before and after a restart: owners are in the store.
  for (int round = 0; round < 2; ++round) {
    {
      TestClient ann = client("ann"), root = client("root");
      const Json list = {{"what", "list"}};
      EXPECT_EQ(ann.request(list)["batches"].size(), 1u);
      EXPECT_EQ(ann.request(list)["batches"][0]["batchmill"]["owner"], keys_["ann"].public_key);
      EXPECT_EQ(root.request(list)["batches"].size(), 3u);
      EXPECT_EQ(ann.request({{"what", "list"}, {"key", "nightly"}})["batches"][0]["id"],
                jobs["ann"]);
      for (const std::string& other : {jobs["bob"], jobs[""]}) {
        for (const char* what : {"status", "results", "costs", "cancel", "pause", "resume"}) {
          EXPECT_EQ(refusal([&] { ann.request({{"what", what}, {"job", other}}); }), "no_such_job");
        }
        EXPECT_EQ(refusal([&] {
                    ann.request({{"what", "explain"}, {"job", other}, {"custom_id", "l0"}});
                  }),
                  "no_such_job");
        EXPECT_EQ(refusal([&] {
                    ann.request({{"what", "list"}, {"after", other}});
                  }),
                  "no_such_job");
        EXPECT_EQ(root.results(other).size(), 3u);
      }
      const auto rows = [](TestClient& from, const char* by) {
        const std::string text = from.request_payload({{"what", "costs"}, {"by", by}});
        return std::ranges::count(text, '\n');
      };
      EXPECT_EQ(rows(ann, "job"), 1);
      EXPECT_EQ(rows(root, "job"), 3);
      const std::string models = ann.request_payload({{"what", "costs"}, {"by", "model"}});
      EXPECT_EQ(Json::parse(models)["lines"]["completed"], 3);
      EXPECT_EQ(refusal([&] { ann.request({{"what", "compact"}}); }), "not_allowed");
      root.request({{"what", "compact"}});
    }
    daemon_.stop();
    daemon_.start();
  }
}

TEST_F(AccessTest, NobodyAddsToTheUploadOfAnother) {
  TestClient ann = client("ann");
  const std::string job = ann.submit(job_of(1), {{"key", "a"}});
  // The protocol of an upload, by one who knows the job's id.
  JobClient bob(daemon_.options().queue.endpoints[0], "bob",
                ClientKeys{server_.public_key, keys_["bob"]});
  EXPECT_EQ(refusal([&] {
              bob.request({{"what", "status"}, {"job", job}}, std::chrono::seconds(60));
            }),
            "no_such_job");
}

TEST_F(AccessTest, AKeyHasLimits) {
  const std::string nine = job_of(9);
  const auto ended = [](const Json& batch) { return batch["status"] == "failed"; };
  const auto expect_cut = [&](const std::function<void(Caller&)>& set, const std::string& key) {
    allow("ann", set);
    TestClient ann = client("ann");
    EXPECT_EQ(refusal([&] { ann.submit(nine, {{"key", key}}); }), "limit_exceeded");
    const Json listed = ann.request({{"what", "list"}, {"key", key}})["batches"];
    ASSERT_EQ(listed.size(), 1u);
    const Json batch = ann.wait_until(listed[0]["id"], ended);
    EXPECT_EQ(batch["errors"]["data"][0]["code"], "limit_exceeded");
    EXPECT_LT(batch["request_counts"]["total"], 9);
  };
  expect_cut([](Caller& client) { client.max_lines = 8; }, "lines");
  expect_cut([&](Caller& client) { client.max_bytes = nine.size() - 1; }, "bytes");

  allow("ann", [&](Caller& client) {
    client.max_lines = 9;
    client.max_bytes = nine.size();
    client.max_jobs = 1;
  });
  TestClient ann = client("ann");
  std::unique_lock hold(steps_);
  const std::string job = ann.submit(nine, {{"key", "fits"}});
  EXPECT_EQ(refusal([&] { ann.submit(nine, {{"key", "second"}}); }), "limit_exceeded");
  hold.unlock();
  EXPECT_EQ(ann.submit(nine, {{"key", "fits"}}), job);  // no second job
  ann.request({{"what", "cancel"}, {"job", job}});
  ann.wait(ann.submit(nine, {{"key", "second"}}));
}

TEST_F(AccessTest, RightsEndWithTheKey) {
  TestClient ann = client("ann");
  const std::string job = ann.submit(job_of(2), {{"key", "k"}});
  edit_allowed_clients(daemon_.options().queue.allowed_clients_file, [&](auto& clients) {
    std::erase_if(clients, [](const Caller& c) { return c.name == "ann"; });
  });
  EXPECT_EQ(refusal([&] { ann.batch(job); }), "not_allowed");
  // What it had sent runs, and is the operator's to see.
  EXPECT_EQ(daemon_.wait(job)["status"], "completed");
}

}  // namespace
}  // namespace batchmill::testing
