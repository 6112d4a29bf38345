// Lines that were planned for a larger context or KV cache than there is after a restart.
#include "actors/plan_fit.h"

#include <gtest/gtest.h>

#include <condition_variable>
#include <map>
#include <mutex>
#include <string>

#include "tests/actors/test_daemon.h"

namespace batchmill::testing {
namespace {

// Steps wait while it is closed.
class StepGate {
 public:
  void set_open(bool open) {
    const std::lock_guard lock(mutex_);
    is_open_ = open;
    changed_.notify_all();
  }
  void pass() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return is_open_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_open_ = false;
};

std::string words(int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += " w" + std::to_string(i % 10);
  return text;
}

// A line whose oldest turns may go.
std::string truncatable_line(const std::string& custom_id) {
  Json messages = Json::array();
  for (int turn = 0; turn < 4; ++turn) {
    messages.push_back({{"role", "user"}, {"content", words(40)}});
    messages.push_back({{"role", "assistant"}, {"content", words(5)}});
  }
  messages.push_back({{"role", "user"}, {"content", "what now?"}});
  const Json line = {{"custom_id", custom_id},
                     {"method", "POST"},
                     {"url", "/v1/chat/completions"},
                     {"body",
                      {{"model", "tiny"},
                       {"messages", messages},
                       {"truncation", "auto"},
                       {"max_tokens", 8},
                       {"temperature", 0}}}};
  return line.dump() + "\n";
}

class PlanFitTest : public ::testing::Test {
 protected:
  PlanFitTest() {
    TestDaemon::Options options;
    options.engine.max_num_seqs = 4;
    options.before_step = [this](std::int64_t) { gate_.pass(); };
    daemon_ = std::make_unique<TestDaemon>(options);
    daemon_->start();
  }
  ~PlanFitTest() override {
    gate_.set_open(true);
    if (daemon_->running()) daemon_->stop(std::chrono::milliseconds(0));
  }

  // Plans lines that all fit, starts anew with less room, and runs them. By custom_id.
  std::map<std::string, Json> run_with_less_room(const std::function<void()>& take_room) {
    const std::string content = chat_line("short", "hi", 4) + chat_line("long-answer", "hi", 400) +
                                chat_line("long-prompt", words(120), 4) +
                                truncatable_line("turns") + chat_line("last", "hi again", 4);
    const std::string job = daemon_->submit(content);
    daemon_->wait_until(job, [](const Json& batch) { return batch["status"] == "in_progress"; });
    daemon_->request({{"what", "pause"}, {"job", job}});
    EXPECT_EQ(daemon_->batch(job)["request_counts"]["failed"], 0);
    gate_.set_open(true);
    daemon_->stop(std::chrono::milliseconds(0));
    take_room();
    daemon_->start();
    EXPECT_EQ(daemon_->batch(job)["request_counts"]["failed"], 0);
    EXPECT_EQ(daemon_->request({{"what", "resume"}, {"job", job}})["changed"], true);
    daemon_->wait(job);
    std::map<std::string, Json> lines;
    for (Json& line : daemon_->results(job)) lines[line["custom_id"].get<std::string>()] = line;
    EXPECT_EQ(lines.size(), 5u);
    return lines;
  }

  StepGate gate_;
  std::unique_ptr<TestDaemon> daemon_;
};

TEST_F(PlanFitTest, ASmallerContextTreatsPlannedLinesAsNewOnes) {
  std::map<std::string, Json> lines =
      run_with_less_room([this] { daemon_->options().max_context_tokens = 200; });
  EXPECT_TRUE(lines["short"]["error"].is_null());
  EXPECT_TRUE(lines["last"]["error"].is_null());
  const Json& usage = lines["long-answer"]["response"]["body"]["usage"];
  EXPECT_EQ(usage["total_tokens"], 200);
  EXPECT_EQ(lines["long-prompt"]["error"]["code"], "context_length_exceeded");
  EXPECT_GT(lines["turns"]["response"]["body"]["truncation"]["dropped_turns"], 0);
}

TEST_F(PlanFitTest, SoDoesASmallerCache) {
  std::map<std::string, Json> lines = run_with_less_room([this] {
    daemon_->options().num_blocks = 20;
    daemon_->options().block_size_tokens = 10;
  });
  EXPECT_TRUE(lines["short"]["error"].is_null());
  EXPECT_EQ(lines["long-answer"]["response"]["body"]["usage"]["total_tokens"], 200);
  EXPECT_EQ(lines["long-prompt"]["error"]["code"], "out_of_memory");
}

}  // namespace
}  // namespace batchmill::testing
