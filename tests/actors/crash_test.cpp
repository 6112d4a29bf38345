// A daemon that dies at a named write, then at any write: nothing is lost and nothing twice.
// BATCHMILL_SOAK_ROUNDS=200 makes more rounds than the usual 22.
#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <future>
#include <iterator>
#include <mutex>
#include <random>

#include "storage/data_directory.h"
#include "storage/job_store.h"
#include "tests/actors/daemon_process.h"
#include "tests/actors/job_audit.h"
#include "tests/actors/test_client.h"
#include "tests/actors/test_daemon.h"

namespace batchmill::testing {
namespace {

// Every write that a daemon makes for a job of its own accord.
constexpr const char* kWrites[] = {
    "open_job",         "write_lines",    "seal",      "commit_prepared",
    "begin_attempts",   "commit_results", "claim_ids", "set_strict_checked",
    "measure_prefixes", "set_paused",     "end_job"};
constexpr int kUsualRounds = 2 * std::size(kWrites);
constexpr std::uint64_t kSeed = 20240711;
constexpr std::size_t kNumLines = 30;

int num_rounds() {
  const char* text = std::getenv("BATCHMILL_SOAK_ROUNDS");
  return text == nullptr ? kUsualRounds : std::max(1, std::atoi(text));
}

// Starts a program with its output in a file; returns its process.
pid_t start(const std::vector<std::string>& command, const std::string& output) {
  std::vector<char*> arguments;
  for (const std::string& argument : command) {
    arguments.push_back(const_cast<char*>(argument.c_str()));
  }
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, output.c_str(),
                                     O_WRONLY | O_CREAT | O_TRUNC, 0600);
  pid_t pid = -1;
  EXPECT_EQ(
      ::posix_spawn(&pid, command.front().c_str(), &actions, nullptr, arguments.data(), environ),
      0);
  ::posix_spawn_file_actions_destroy(&actions);
  return pid;
}

int end_of(pid_t pid) {
  int status = 0;
  ::waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

class CrashTest : public ::testing::Test {
 protected:
  std::string data() const { return directory_->path() + "/data"; }
  std::string store_path() const { return data() + "/store"; }
  std::string endpoint() const { return DataDirectory::control_endpoint(data()); }

  // False when the process died before it was ready.
  bool start_daemon(const std::string& fail_point, std::vector<std::string> more = {}) {
    std::vector<std::string> command = {BATCHMILL_BIN "/scripted_daemon", "--data", data(),
                                        "--credit-bytes", "2000"};
    if (!fail_point.empty()) command.insert(command.end(), {"--fail-point", fail_point});
    command.insert(command.end(), more.begin(), more.end());
    try {
      daemon_ = std::make_unique<DaemonProcess>(command);
      return true;
    } catch (const std::runtime_error&) {
      return false;
    }
  }

  void run_round(int number, const std::string& fail_point, bool strict);

  std::unique_ptr<TemporaryDirectory> directory_ = std::make_unique<TemporaryDirectory>();
  std::unique_ptr<DaemonProcess> daemon_;
};

// One job whose daemon dies at `fail_point`, is started again and dies at any write, is started
// again and ends the job.
void CrashTest::run_round(int number, const std::string& fail_point, bool strict) {
  directory_ = std::make_unique<TemporaryDirectory>();
  std::mt19937_64 random(kSeed + static_cast<std::uint64_t>(number));
  const std::string second = fmt::format("any:{}", 1 + random() % 60);
  SCOPED_TRACE(fmt::format("round {}: {}, then {}", number, fail_point, second));
  const std::size_t num_failed = strict ? 0 : 1;
  std::string content;
  for (std::size_t line = 1; line <= kNumLines; ++line) {
    Json one = Json::parse(chat_line(fmt::format("line-{}", line), fmt::format("tell {}", line)));
    if (line == 11 && !strict) one["body"]["temperature"] = 9;
    content += one.dump() + "\n";
  }

  std::mutex restarting;
  bool done = false;
  ASSERT_TRUE(start_daemon(fail_point));
  std::future<void> client_done = std::async(std::launch::async, [&] {
    try {
      TestClient client(endpoint());
      const std::string job = client.submit(content, {{"key", "round"}, {"strict", strict}});
      client.request({{"what", "pause"}, {"job", job}});
      client.request({{"what", "resume"}, {"job", job}});
      client.wait(job);
      expect_exact(client, job, kNumLines, num_failed);
    } catch (const std::exception& error) {
      ADD_FAILURE() << error.what();
    }
    const std::lock_guard lock(restarting);
    done = true;
    daemon_->terminate();
  });
  int deaths = 0;
  while (daemon_->wait() == -SIGKILL) {
    audit_store(store_path());
    const std::lock_guard lock(restarting);
    // A second one may die before it is ready, then the third does not die.
    if (++deaths > 1 || !start_daemon(second)) {
      ASSERT_TRUE(start_daemon(""));
    }
    if (done) daemon_->terminate();
  }
  client_done.get();
  EXPECT_GE(deaths, 1) << "there is no such point";
  audit_store(store_path());
}

TEST_F(CrashTest, DeathAtAnyWriteLosesNothingAndRepeatsNothing) {
  const int rounds = num_rounds();
  for (int round = 0; round < rounds && !HasFailure(); ++round) {
    const std::size_t point = static_cast<std::size_t>(round) % kUsualRounds;
    const std::string write = kWrites[point / 2];
    const bool is_repeated =
        write == "write_lines" || write == "begin_attempts" || write == "commit_results";
    run_round(round,
              fmt::format("{}.{}:{}", write, point % 2 == 0 ? "before" : "after",
                          is_repeated ? 1 + round / kUsualRounds % 3 : 1),
              write == "set_strict_checked" || write == "claim_ids");
  }
  fmt::print("{} rounds\n", rounds);
}

// The client dies in the middle of an upload, with its daemon or alone; the same command goes on.
class UploadCrashTest : public CrashTest {
 protected:
  void run(bool daemon_dies_too) {
    std::string content;
    for (std::size_t line = 1; line <= kNumLines; ++line) {
      content += chat_line(fmt::format("line-{}", line), fmt::format("tell {}", line));
    }
    const std::string input = directory_->path() + "/in.jsonl";
    std::ofstream(input) << content;
    const std::vector<std::string> command = {BATCHMILL_BIN "/batchmill",
                                              "submit",
                                              input,
                                              "--idempotency-key",
                                              "upload",
                                              "--data",
                                              data(),
                                              "--quiet"};
    ASSERT_TRUE(start_daemon("write_lines.after:2=stop"));
    const pid_t client = start(command, directory_->path() + "/first");
    ASSERT_TRUE(daemon_->wait_stopped());
    ASSERT_EQ(::kill(client, SIGKILL), 0);
    EXPECT_EQ(end_of(client), -SIGKILL);
    if (daemon_dies_too) {
      daemon_->kill();
      EXPECT_EQ(daemon_->wait(), -SIGKILL);
      audit_store(store_path());
      ASSERT_TRUE(start_daemon(""));
    } else {
      daemon_->go_on();
    }
    {
      TestClient asks(endpoint());
      const Json list = asks.request({{"what", "list"}});
      ASSERT_EQ(list["batches"].size(), 1u);
      const std::uint64_t lines = list["batches"][0]["request_counts"]["total"];
      EXPECT_GE(lines, 2u);
      EXPECT_LT(lines, kNumLines);
    }
    const std::string output = directory_->path() + "/second";
    EXPECT_EQ(end_of(start(command, output)), 0);
    std::string job;
    std::ifstream(output) >> job;
    {
      TestClient asks(endpoint());
      asks.wait(job);
      EXPECT_EQ(asks.request({{"what", "list"}})["batches"].size(), 1u);
      expect_exact(asks, job, kNumLines, 0);
    }
    daemon_->terminate();
    EXPECT_EQ(daemon_->wait(), 0);
    audit_store(store_path());
  }
};

TEST_F(UploadCrashTest, AClientThatDiesIsFollowedByOneThatGoesOn) { run(false); }

TEST_F(UploadCrashTest, SoIsAClientThatDiesWithItsDaemon) { run(true); }

}  // namespace
}  // namespace batchmill::testing
