// The life of a job beyond running to its end: deadlines, cancels, pauses, priorities, lost
// clients.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <set>

#include "tests/actors/test_daemon.h"

namespace batchmill::testing {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::seconds;

std::string lines_of(const std::string& name, int count, int max_tokens = 4) {
  std::string content;
  for (int i = 0; i < count; ++i) {
    content += chat_line(fmt::format("{}-{}", name, i), fmt::format("{} {}", name, i), max_tokens);
  }
  return content;
}

// Counts lines by error code, "" for completed ones; each custom_id must be there once.
std::map<std::string, int> outcomes(const std::vector<Json>& lines) {
  std::map<std::string, int> counts;
  std::set<std::string> ids;
  for (const Json& line : lines) {
    EXPECT_TRUE(ids.insert(line["custom_id"].get<std::string>()).second) << line;
    ++counts[line["error"].is_null() ? "" : line["error"]["code"].get<std::string>()];
  }
  return counts;
}

int completed(const Json& batch) { return batch["request_counts"]["completed"].get<int>(); }

// Lets the device make so many steps and no more.
class StepGate {
 public:
  void allow(std::int64_t steps) {
    const std::lock_guard lock(mutex_);
    left_ = steps;
    changed_.notify_all();
  }
  void wait_used() {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, seconds(60), [this] { return left_ == 0; }));
  }
  std::function<void(std::int64_t)> before_step() {
    return [this](std::int64_t) {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return left_ > 0; });
      --left_;
      changed_.notify_all();
    };
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::int64_t left_ = 0;
};

constexpr std::int64_t kForever = INT64_MAX;
constexpr int kMaxRunning = 4;
constexpr seconds kUploadTimeout{600};

class JobLifeTest : public ::testing::Test {
 protected:
  // A daemon whose device makes no step before the gate allows it.
  JobLifeTest() {
    TestDaemon::Options options;
    options.engine.max_num_seqs = kMaxRunning;
    options.before_step = gate_.before_step();
    options.queue.credit_bytes = 4 << 10;
    options.queue.upload_timeout_s = kUploadTimeout.count();
    daemon_ = std::make_unique<TestDaemon>(options);
    daemon_->start();
  }
  ~JobLifeTest() override {
    gate_.allow(kForever);
    if (daemon_->running()) daemon_->stop(milliseconds(0));
  }

  void restart(const std::function<void()>& while_down = [] {}) {
    gate_.allow(kForever);
    daemon_->stop(milliseconds(0));
    gate_.allow(0);
    while_down();
    daemon_->start();
  }
  bool change(const std::string& what, const std::string& job) {
    return daemon_->request({{"what", what}, {"job", job}})["changed"].get<bool>();
  }
  int lines_in(const std::string& side, const std::string& job) {
    const std::string lines =
        daemon_->request_payload({{"what", "results"}, {"job", job}, {"from", 0}, {"side", side}});
    return static_cast<int>(std::ranges::count(lines, '\n'));
  }
  std::map<std::string, Json> costs_by_id(const std::string& job) {
    std::map<std::string, Json> rows;
    for (const Json& row : daemon_->costs(job, "line")) rows[row["custom_id"]] = row;
    return rows;
  }

  StepGate gate_;
  std::unique_ptr<TestDaemon> daemon_;
};

TEST_F(JobLifeTest, ADeadlineKeepsFinishedLinesAndFailsTheOthers) {
  const std::string job = daemon_->submit(lines_of("late", 40), {{"deadline_s", 3600}});
  gate_.allow(10);
  daemon_->wait_until(job, [](const Json& now) { return completed(now) >= 4; });
  daemon_->clock().pass(hours(1));
  const Json batch = daemon_->wait(job);
  EXPECT_EQ(batch["status"], "expired");
  std::map<std::string, int> counts = outcomes(daemon_->results(job));
  EXPECT_GE(counts[""], 4);
  EXPECT_EQ(counts[""], completed(batch));
  EXPECT_EQ(counts["batch_expired"], 40 - counts[""]);
  EXPECT_EQ(batch["request_counts"]["failed"], counts["batch_expired"]);
  EXPECT_EQ(lines_in("output", job), counts[""]);
  EXPECT_EQ(lines_in("errors", job), counts["batch_expired"]);
  // What was in flight ends without a second answer.
  gate_.allow(kForever);
  EXPECT_EQ(daemon_->wait(daemon_->submit(lines_of("next", 5)))["status"], "completed");
  EXPECT_EQ(outcomes(daemon_->results(job)), counts);
}

TEST_F(JobLifeTest, ADeadlineGoesOnWhileTheDaemonIsDown) {
  const std::string job = daemon_->submit(lines_of("late", 40), {{"deadline_s", 3600}});
  change("pause", job);
  restart([this] { daemon_->clock().set_wall(hours(1)); });
  EXPECT_EQ(daemon_->wait(job)["status"], "expired");
  std::map<std::string, int> counts = outcomes(daemon_->results(job));
  EXPECT_LE(counts[""], kMaxRunning);  // those that ran when it was paused
  EXPECT_EQ(counts["batch_expired"], 40 - counts[""]);
}

TEST_F(JobLifeTest, AWallClockThatIsSetEndsNoJob) {
  const std::string job = daemon_->submit(lines_of("slow", 40), {{"deadline_s", 3600}});
  // The ends of others show that deadlines are being looked at.
  std::vector<std::string> others;
  for (const int deadline_s : {60, 120, 180}) {
    others.push_back(daemon_->submit(lines_of("other", 3), {{"deadline_s", deadline_s}}));
  }
  std::vector<hours> settings = {hours(48), hours(-96), hours(0)};
  for (std::size_t i = 0; i < others.size(); ++i) {
    daemon_->clock().pass(seconds(60));
    EXPECT_EQ(daemon_->wait(others[i])["status"], "expired");
    EXPECT_EQ(daemon_->batch(job)["status"], "in_progress");
    daemon_->clock().set_wall(settings[i]);
  }
  gate_.allow(kForever);
  EXPECT_EQ(daemon_->wait(job)["status"], "completed");
}

TEST_F(JobLifeTest, ACancelDuringTheUploadEndsIt) {
  for (const bool strict : {false, true}) {
    std::string job;
    TestClient other(daemon_->daemon().control_endpoint());
    const auto on_ack = [&](std::uint64_t durable_bytes) {
      if (durable_bytes == 0 || !job.empty()) return;
      const Json newest = other.request({{"what", "list"}})["batches"][0];
      job = newest["id"].get<std::string>();
      if (strict) {
        EXPECT_EQ(newest["status"], "validating");
      }
      EXPECT_TRUE(other.request({{"what", "cancel"}, {"job", job}})["changed"].get<bool>());
    };
    try {
      daemon_->submit(lines_of("cut", 400), {{"strict", strict}}, on_ack);
      ADD_FAILURE() << "the upload went on";
    } catch (const RemoteError& error) {
      EXPECT_EQ(error.code(), "job_ended");
    }
    const Json batch = daemon_->batch(job);
    EXPECT_EQ(batch["status"], "cancelled");
    const int total = batch["request_counts"]["total"];
    EXPECT_GT(total, 0);
    EXPECT_LT(total, 400);
    EXPECT_EQ(outcomes(daemon_->results(job)),
              (std::map<std::string, int>{{"batch_cancelled", total}}));
  }
  EXPECT_EQ(daemon_->num_rows(), 0);
}

TEST_F(JobLifeTest, AStrictJobThatIsCancelledRunsNothing) {
  const std::string job = daemon_->submit(lines_of("checked", 3000), {{"strict", true}});
  EXPECT_TRUE(change("cancel", job));
  EXPECT_EQ(daemon_->wait(job)["status"], "cancelled");
  gate_.allow(kForever);
  EXPECT_EQ(daemon_->wait(daemon_->submit(lines_of("next", 5)))["status"], "completed");
  EXPECT_EQ(outcomes(daemon_->results(job)),
            (std::map<std::string, int>{{"batch_cancelled", 3000}}));
}

// Whichever comes first, the last result or the cancel, it decides for the whole job.
TEST_F(JobLifeTest, ACancelAtTheLastResultIsOneOrTheOther) {
  gate_.allow(kForever);
  std::map<std::string, int> ends;
  for (int round = 0; round < 30; ++round) {
    const std::string job = daemon_->submit(lines_of(fmt::format("r{}", round), 8));
    const int enough = 5 + round % 4;
    if (enough == 8) daemon_->wait(job);
    daemon_->wait_until(job, [&](const Json& now) { return completed(now) >= enough; });
    const bool changed = change("cancel", job);
    const Json batch = daemon_->wait(job);
    const std::map<std::string, int> counts = outcomes(daemon_->results(job));
    EXPECT_EQ(batch["status"], changed ? "cancelled" : "completed");
    EXPECT_EQ(counts.contains("batch_cancelled"), changed && completed(batch) < 8);
    EXPECT_EQ(batch["request_counts"]["failed"], 8 - completed(batch));
    ++ends[batch["status"]];
  }
  EXPECT_GE(ends["completed"], 1);
}

TEST_F(JobLifeTest, APauseOutlivesTheDaemonAndSoDoesItsEnd) {
  gate_.allow(8);
  const std::string job = daemon_->submit(lines_of("paused", 200));
  daemon_->wait_until(job, [](const Json& now) { return completed(now) > 0; });
  EXPECT_TRUE(change("pause", job));
  EXPECT_FALSE(change("pause", job));
  restart();
  gate_.allow(kForever);
  EXPECT_TRUE(daemon_->batch(job)["batchmill"]["paused"].get<bool>());
  const int before = completed(daemon_->batch(job));
  EXPECT_EQ(daemon_->wait(daemon_->submit(lines_of("other", 20)))["status"], "completed");
  EXPECT_EQ(completed(daemon_->batch(job)), before);
  EXPECT_TRUE(change("resume", job));
  restart();
  gate_.allow(kForever);
  EXPECT_FALSE(daemon_->batch(job)["batchmill"]["paused"].get<bool>());
  EXPECT_EQ(daemon_->wait(job)["request_counts"]["completed"], 200);
}

TEST_F(JobLifeTest, PriorityLevelsShareTheDeviceByTheirWeights) {
  const std::string low = daemon_->submit(lines_of("low", 600));
  const std::string high = daemon_->submit(lines_of("hi", 600), {{"priority", 2}});
  const auto is_planned = [](const Json& now) {
    return !now["batchmill"]["prefix"]["possible_tokens"].is_null();
  };
  daemon_->wait_until(low, is_planned);
  daemon_->wait_until(high, is_planned);
  gate_.allow(kForever);
  int of_high = 0;
  int of_low = 0;
  daemon_->wait_for([&] {
    of_high = completed(daemon_->batch(high));
    of_low = completed(daemon_->batch(low));
    return of_high >= 300;
  });
  const double share = static_cast<double>(of_high) / std::max(of_low, 1);
  EXPECT_GT(of_low, 0) << "the lower level moves, too";
  EXPECT_GT(share, 2.5);  // 2^2, but for what was in flight first
  EXPECT_LT(share, 5.5);
}

TEST_F(JobLifeTest, AShortJobDoesNotWaitForALongOne) {
  const std::string long_job = daemon_->submit(lines_of("long", 3000));
  gate_.allow(40);
  daemon_->wait_until(long_job, [](const Json& now) { return completed(now) >= 8; });
  const std::string short_job = daemon_->submit(lines_of("zz", 10));
  daemon_->wait_until(short_job, [](const Json& now) {
    return !now["batchmill"]["prefix"]["possible_tokens"].is_null();
  });
  // Its lines take 4 steps each, in a quarter of 4 places: some 40 steps, and those that pass until
  // we have asked. All the others take 3,000.
  constexpr int kSteps = 8;
  int steps = 0;
  while (daemon_->batch(short_job)["status"] != "completed" && steps < 3'000) {
    gate_.wait_used();
    gate_.allow(kSteps);
    steps += kSteps;
  }
  EXPECT_LT(steps, 600);
  EXPECT_LT(completed(daemon_->batch(long_job)), 800);
}

TEST_F(JobLifeTest, AnUploadWhoseClientIsSilentIsClosed) {
  gate_.allow(kForever);
  {
    // It dies with its connection, in the middle of its upload, when something has been acked.
    JobClient client(daemon_->daemon().control_endpoint(), "silent");
    const std::string content = lines_of("cut", 200);
    try {
      client.upload(
          {{"key", "silent"}},
          [&](std::uint64_t offset, char* buffer, std::size_t size) {
            return content.copy(buffer, std::min<std::size_t>(size, 1'000), offset);
          },
          [](std::uint64_t durable_bytes) {
            if (durable_bytes != 0) throw std::runtime_error("gone");
          },
          seconds(60));
      FAIL() << "the upload ended";
    } catch (const std::runtime_error& error) {
      ASSERT_STREQ(error.what(), "gone");
    }
  }
  const Json batches = daemon_->request({{"what", "list"}, {"key", "silent"}})["batches"];
  ASSERT_EQ(batches.size(), 1u);
  const std::string job = batches[0]["id"].get<std::string>();
  daemon_->wait_until(job, [](const Json& now) { return completed(now) > 0; });
  daemon_->clock().pass(kUploadTimeout - seconds(60));
  const Json open = daemon_->batch(job);
  EXPECT_EQ(open["status"], "in_progress") << "it may still go on";
  daemon_->clock().pass(seconds(60));
  const Json batch = daemon_->wait(job);
  EXPECT_EQ(batch["status"], "failed");
  EXPECT_EQ(batch["errors"]["data"][0]["code"], "truncated_input");
  const int total = batch["request_counts"]["total"];
  EXPECT_GT(total, 0);
  EXPECT_EQ(completed(batch), total);
  EXPECT_EQ(outcomes(daemon_->results(job)), (std::map<std::string, int>{{"", total}}));
}

TEST_F(JobLifeTest, PruneTakesWhatHasEndedAndNothingThatRuns) {
  gate_.allow(kForever);
  const std::string ended = daemon_->submit(lines_of("old", 10));
  daemon_->wait(ended);
  gate_.allow(0);
  const std::string running = daemon_->submit(lines_of("running", 40));
  const std::string paused = daemon_->submit(lines_of("paused", 40));
  change("pause", paused);
  gate_.allow(10);
  daemon_->wait_until(running, [](const Json& now) { return completed(now) > 0; });
  daemon_->clock().pass(hours(24 * 365));
  EXPECT_EQ(daemon_->request({{"what", "prune"}, {"older_than_s", 0}})["jobs"], 1);
  EXPECT_THROW(daemon_->batch(ended), RemoteError);
  change("resume", paused);
  gate_.allow(kForever);
  for (const std::string& job : {running, paused}) {
    EXPECT_EQ(daemon_->wait(job)["status"], "completed");
    EXPECT_EQ(outcomes(daemon_->results(job)), (std::map<std::string, int>{{"", 40}}));
  }
}

// What a line cost is what prices were when it finished.
TEST_F(JobLifeTest, PricesThatChangeLeaveBilledLinesAlone) {
  const std::string job = daemon_->submit(lines_of("billed", 40));
  gate_.allow(10);
  daemon_->wait_until(job, [](const Json& now) { return completed(now) >= 4; });
  gate_.wait_used();
  const std::map<std::string, Json> before = costs_by_id(job);
  Price doubled = daemon_->options().price;
  doubled.version = "2025-02";
  for (std::int64_t* price : {&doubled.input, &doubled.cached_input, &doubled.output}) *price *= 2;
  daemon_->set_price(doubled);
  gate_.allow(kForever);
  daemon_->wait(job);
  const std::map<std::string, Json> after = costs_by_id(job);
  ASSERT_EQ(after.size(), 40u);
  std::map<std::string, int> versions;
  for (const auto& [id, row] : after) {
    ++versions[row["price_version"]];
    if (before.contains(id)) {
      EXPECT_EQ(row, before.at(id));
    }
    const bool is_old = row["price_version"] == "2025-01";
    const Json& cost = row["cost"];
    EXPECT_EQ(cost["completion"], is_old ? "0.0000024" : "0.0000048") << row;  // 4 tokens
  }
  EXPECT_GE(versions["2025-01"], static_cast<int>(before.size()));
  EXPECT_GE(versions["2025-02"], 40 - 2 * kMaxRunning - static_cast<int>(before.size()));
}

// Lines that run longer go back to the plan early enough for the rest of the end.
TEST(StopTest, TakesNoLongerThanTheTimeToDrain) {
  constexpr milliseconds kDrainTime{6'000};
  std::mutex mutex;
  std::condition_variable never;
  TestDaemon::Options options;
  options.before_step = [&](std::int64_t) {
    std::unique_lock lock(mutex);
    never.wait_for(lock, milliseconds(30));
  };
  TestDaemon daemon(options);
  daemon.start();
  const std::string job = daemon.submit(chat_line("long", "x", 400));
  daemon.wait_for([&] { return daemon.num_rows() > 0; });
  const auto start = std::chrono::steady_clock::now();
  daemon.stop(kDrainTime);
  EXPECT_LT(std::chrono::steady_clock::now() - start, kDrainTime);
}

}  // namespace
}  // namespace batchmill::testing
