// What a daemon that is killed loses: nothing.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <csignal>
#include <cstring>
#include <future>
#include <map>
#include <mutex>
#include <random>
#include <set>

#include "storage/data_directory.h"
#include "storage/job_store.h"
#include "tests/actors/daemon_process.h"
#include "tests/actors/job_audit.h"
#include "tests/actors/test_client.h"
#include "tests/actors/test_daemon.h"
#include "tests/support/reference_data.h"
#include "tests/support/sanitized_build.h"

namespace batchmill::testing {
namespace {

using std::chrono::seconds;

constexpr seconds kPatience{60};
constexpr std::size_t kNumLines = 500;
constexpr int kUploadKills = 6;
constexpr int kRunKills = 14;
constexpr std::uint64_t kCreditBytes = 48 << 10;  // some 40 lines

std::string id_of(std::uint64_t line) { return fmt::format("line-{:03}", line); }

// A conversation of many turns: reading and rendering it takes long enough that a kill can find an
// acked line that has no plan entry yet. Prompts sort as their lines do (each digit is a token), so
// that lines that were in flight at a kill come first after it.
std::string conversation_line(std::uint64_t line, int max_tokens) {
  Json messages = Json::array();
  for (int turn = 0; turn < 20; ++turn) {
    const char* role = turn % 2 == 0 ? "user" : "assistant";
    messages.push_back({{"role", role}, {"content", fmt::format("{:03} {}", line, turn)}});
  }
  messages.push_back({{"role", "user"}, {"content", fmt::format("number {}", line)}});
  Json all = Json::parse(chat_line(id_of(line), "", max_tokens));
  all["body"]["messages"] = std::move(messages);
  return all.dump() + "\n";
}

// What a store holds about a job that nobody runs just now.
struct Snapshot {
  Job job;
  std::map<std::uint64_t, std::uint32_t> attempts;  // line → attempts, of lines without a result
  std::uint32_t most_attempts = 0;  // of lines with a result
  std::vector<std::string> problems;
};

// Starts, kills and looks into a daemon over one data directory.
class KillTest : public ::testing::Test {
 protected:
  std::string data() const { return directory_.path() + "/data"; }
  std::string endpoint() const { return DataDirectory::control_endpoint(data()); }

  void start_scripted(std::vector<std::string> more = {}) {
    std::vector<std::string> command = {BATCHMILL_BIN "/scripted_daemon", "--data", data()};
    command.insert(command.end(), more.begin(), more.end());
    daemon_ = std::make_unique<DaemonProcess>(command);
  }

  void reap() {
    EXPECT_EQ(daemon_->wait(), -SIGKILL);
    daemon_.reset();
  }

  void end_in_good_order() {
    daemon_->terminate();
    EXPECT_EQ(daemon_->wait(), 0);
    daemon_.reset();
  }

  // At the only job.
  Snapshot look() const {
    const DataDirectory directory(data(), DataDirectory::Lock::kShared);
    const auto store = JobStore::open(directory.store_path(), {}, JobStore::Mode::kReadOnly);
    Snapshot snapshot;
    snapshot.job = store->list(std::nullopt, 1, "").at(0);
    const JobId& id = snapshot.job.id;
    snapshot.problems = store->check().problems;
    std::vector<LineKey> lines;
    for (std::uint64_t line = 1; line <= snapshot.job.state.total_lines; ++line) {
      lines.push_back({id, line});
    }
    const std::vector<std::uint32_t> attempts = store->attempts(lines);
    for (std::size_t i = 0; i < lines.size(); ++i) {
      if (const auto result = store->result(lines[i])) {
        snapshot.most_attempts = std::max(snapshot.most_attempts, result->attempt);
      } else if (attempts[i] > 0) {
        snapshot.attempts[lines[i].line] = attempts[i];
      }
    }
    return snapshot;
  }

  TemporaryDirectory directory_;
  std::unique_ptr<DaemonProcess> daemon_;
};

// An upload on a thread of its own that goes on by itself whenever the daemon comes back. Armed, it
// lets the next ack decide: it kills the daemon before anything else can happen here, and waits.
class Uploader {
 public:
  Uploader(std::string endpoint, std::string content, std::mt19937::result_type seed)
      : content_(std::move(content)), random_(seed) {
    result_ = std::async(std::launch::async, [this, endpoint] {
      JobClient client(endpoint, "upload");
      return client.upload(
          {{"key", "kill"}},
          [this](std::uint64_t offset, char* buffer, std::size_t size) {
            return read(offset, buffer, size);
          },
          [this](std::uint64_t acked) { on_ack(acked); }, 2 * kPatience);
    });
  }
  ~Uploader() { disarm(); }

  // The daemon dies at the first ack of at least `more_bytes` more than were acked before.
  void arm(DaemonProcess* daemon, std::uint64_t more_bytes) {
    const std::lock_guard lock(mutex_);
    victim_ = daemon;
    kill_at_ = acked_ + more_bytes;
    changed_.notify_all();
  }
  void disarm() {
    const std::lock_guard lock(mutex_);
    free_ = true;
    changed_.notify_all();
  }
  // The offset acked last before the kill; 0: it did not come.
  std::uint64_t wait_for_kill() {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, kPatience, [this] { return victim_ == nullptr; }) ? acked_ : 0;
  }
  JobClient::UploadResult get() { return result_.get(); }

 private:
  std::size_t read(std::uint64_t offset, char* buffer, std::size_t size) {
    const std::size_t left = content_.size() - std::min(content_.size(), offset);
    const std::size_t count =
        std::min({size, left, std::size_t{16 << 10} + random_() % (32 << 10)});
    std::memcpy(buffer, content_.data() + offset, count);
    return count;
  }
  void on_ack(std::uint64_t acked) {
    std::unique_lock lock(mutex_);
    acked_ = acked;
    if (victim_ != nullptr && acked >= kill_at_) {
      victim_->kill();
      victim_ = nullptr;
      changed_.notify_all();
    }
    changed_.wait(lock, [this] { return free_ || victim_ != nullptr; });
  }

  const std::string content_;
  std::mt19937 random_;
  std::mutex mutex_;
  std::condition_variable changed_;
  DaemonProcess* victim_ = nullptr;
  std::uint64_t kill_at_ = 0;
  std::uint64_t acked_ = 0;
  bool free_ = false;
  std::future<JobClient::UploadResult> result_;
};

struct KillCounts {
  int with_lines_in_flight = 0;
  int between_ack_and_plan = 0;
  int while_uploading = 0;
};

void count(const Snapshot& snapshot, KillCounts* counts) {
  counts->with_lines_in_flight += !snapshot.attempts.empty();
  const JobState& state = snapshot.job.state;
  counts->between_ack_and_plan += state.prepared_through < state.total_lines;
  counts->while_uploading += state.upload == UploadState::kOpen;
}

// Twenty kills: six at acks of an upload, the moment at which lines are durable and not yet
// planned; the others after a random number of further results. However often a line was in flight
// then, it has no part in the daemon's death: all succeed, in what counts as their first attempt.
TEST_F(KillTest, LosesNoLineAndRepeatsNoneInTwentyKills) {
  std::mt19937 random(20240613);
  std::string content;
  for (std::uint64_t line = 1; line <= kNumLines; ++line) {
    content += conversation_line(line, 12);
  }
  // Steps long enough for lines to be in flight most of the time.
  const std::vector<std::string> options = {"--step-us", kSanitizedBuild ? "20000" : "2000",
                                            "--credit-bytes", std::to_string(kCreditBytes)};
  start_scripted(options);
  Uploader uploader(endpoint(), content, random());
  // A new one after each start: it need not wait to connect again.
  auto client = std::make_unique<TestClient>(endpoint());
  std::string job;
  KillCounts counts;
  Snapshot last;
  const auto look_again = [&] {
    reap();
    last = look();
    job = last.job.id.to_string();
    EXPECT_EQ(last.problems, std::vector<std::string>());
    for (const auto& [line, attempts] : last.attempts) EXPECT_EQ(attempts, 1u) << line;
    EXPECT_LE(last.most_attempts, 1u);
    count(last, &counts);
    client.reset();
    start_scripted(options);
    client = std::make_unique<TestClient>(endpoint());
  };

  for (int kill = 0; kill < kUploadKills; ++kill) {
    uploader.arm(daemon_.get(), 1 + random() % (16 << 10));
    const std::uint64_t acked = uploader.wait_for_kill();
    ASSERT_GT(acked, 0u);
    look_again();
    EXPECT_GE(last.job.state.upload_offset_bytes, acked);
  }
  uploader.disarm();
  EXPECT_EQ(uploader.get().lines, kNumLines);

  for (int kill = 0; kill < kRunKills; ++kill) {
    const std::uint64_t finished = client->batch(job)["request_counts"]["completed"];
    const std::uint64_t enough = finished + random() % 6;
    ASSERT_LT(enough, kNumLines) << "the job is too fast for its kills";
    client->wait_until(
        job, [&](const Json& now) { return now["request_counts"]["completed"] >= enough; });
    // Any moment of a step and of a write is as likely: this takes a random while.
    for (auto i = random() % 16; i > 0; --i) client->batch(job);
    daemon_->kill();
    look_again();
  }
  fmt::print("kills: {} with lines in flight, {} between ack and plan, {} while uploading\n",
             counts.with_lines_in_flight, counts.between_ack_and_plan, counts.while_uploading);
  EXPECT_GE(counts.with_lines_in_flight, 12);
  EXPECT_GE(counts.between_ack_and_plan, 3);
  EXPECT_GE(counts.while_uploading, 5);

  client->wait(job);
  expect_exact(*client, job, kNumLines, 0);
  end_in_good_order();
  const Snapshot end = look();
  EXPECT_EQ(end.problems, std::vector<std::string>());
  EXPECT_EQ(end.job.counters.completed, kNumLines);
  EXPECT_EQ(end.most_attempts, 1u);
}

// Lines that end the process are found out: twice in company, once alone, then they fail. Those
// that ran beside them lose attempts with them, and are answered.
TEST_F(KillTest, FailsOnlyTheLinesThatKillTheDaemon) {
  constexpr std::uint64_t kLines = 40;
  const std::set<std::uint64_t> poison = {7, 8, 23};
  std::string content;
  for (std::uint64_t line = 1; line <= kLines; ++line) {
    content += chat_line(id_of(line), poison.contains(line) ? fmt::format("zyzzyva {}", line)
                                                            : fmt::format("tell {}", line));
  }
  std::mutex restarting;
  start_scripted({"--die-of", "zyzzyva"});
  std::future<std::string> done = std::async(std::launch::async, [&] {
    TestClient client(endpoint());
    const std::string job = client.submit(content, {{"key", "poison"}});
    client.wait(job);
    const std::lock_guard lock(restarting);
    daemon_->terminate();
    return job;
  });
  int deaths = 0;
  while (daemon_->wait() == -SIGABRT) {
    ASSERT_LE(++deaths, 20);
    EXPECT_EQ(look().problems, std::vector<std::string>());
    const std::lock_guard lock(restarting);
    start_scripted({"--die-of", "zyzzyva"});
  }
  const std::string job = done.get();
  // Each dies alone once; together they die at least twice.
  EXPECT_GE(deaths, 5);
  EXPECT_LE(deaths, 9);
  start_scripted();
  TestClient client(endpoint());
  expect_exact(client, job, kLines, poison.size());
  std::set<std::uint64_t> failed;
  for (const Json& line : client.results(job)) {
    if (line["error"].is_null()) continue;
    EXPECT_EQ(line["error"]["code"], "internal_error");
    failed.insert(line["error"]["line"].get<std::uint64_t>());
    EXPECT_EQ(line["custom_id"], id_of(line["error"]["line"].get<std::uint64_t>()));
  }
  EXPECT_EQ(failed, poison);
  end_in_good_order();
}

}  // namespace
}  // namespace batchmill::testing
