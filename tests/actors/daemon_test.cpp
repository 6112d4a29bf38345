#include "actors/daemon.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <malloc.h>

#include <filesystem>
#include <future>
#include <set>

#include "storage/data_directory.h"
#include "tests/actors/test_daemon.h"

namespace batchmill::testing {
namespace {

std::string many_lines(int count, const std::string& shared_text = "") {
  std::string content;
  for (int i = 0; i < count; ++i) {
    content += chat_line(fmt::format("line-{}", i), fmt::format("{}question {}", shared_text, i));
  }
  return content;
}

void expect_each_once(const std::vector<Json>& lines, int count) {
  std::set<std::string> ids;
  for (const Json& line : lines) {
    EXPECT_TRUE(ids.insert(line["custom_id"].get<std::string>()).second) << line;
  }
  EXPECT_EQ(ids.size(), static_cast<std::size_t>(count));
  EXPECT_EQ(lines.size(), static_cast<std::size_t>(count));
}

std::uint64_t sum(const std::vector<Json>& rows, const Json::json_pointer& path) {
  std::uint64_t total = 0;
  for (const Json& row : rows) total += row.at(path).get<std::uint64_t>();
  return total;
}

TEST(DaemonTest, RunsAJobAndAccountsForEveryToken) {
  TestDaemon daemon;
  daemon.start();
  const std::string job = daemon.submit(many_lines(200, "One shared beginning for all. "));
  const Json batch = daemon.wait(job);
  EXPECT_EQ(batch["status"], "completed");
  EXPECT_EQ(batch["request_counts"]["completed"], 200);
  const std::vector<Json> lines = daemon.results(job);
  expect_each_once(lines, 200);

  const std::vector<Json> ledger = daemon.costs(job, "job");
  ASSERT_EQ(ledger.size(), 1u);
  const Json::json_pointer prompt("/response/body/usage/prompt_tokens");
  const Json::json_pointer completion("/response/body/usage/completion_tokens");
  const Json::json_pointer cached("/response/body/usage/prompt_tokens_details/cached_tokens");
  const Json& tokens = ledger[0]["tokens"];
  EXPECT_EQ(tokens["prompt"], sum(lines, prompt));
  EXPECT_EQ(tokens["completion"], sum(lines, completion));
  EXPECT_EQ(tokens["prompt_cached"], sum(lines, cached));
  EXPECT_EQ(sum(lines, completion), 800u);

  // Rows that entered layer 0: the computed part of every prompt, and one row for each generated
  // token but the last, which is never fed back.
  EXPECT_EQ(static_cast<std::uint64_t>(daemon.num_rows()),
            tokens["prompt_computed"].get<std::uint64_t>() + 200 * 3);

  const std::vector<Json> by_line = daemon.costs(job, "line");
  ASSERT_EQ(by_line.size(), 200u);
  EXPECT_EQ(sum(by_line, Json::json_pointer("/tokens/prompt")), tokens["prompt"]);
  EXPECT_EQ(sum(by_line, Json::json_pointer("/lines/completed")), 200u);
  daemon.stop();
}

TEST(DaemonTest, ReusesAllThatPrefixesAllow) {
  TestDaemon daemon;
  daemon.start();
  const std::string job = daemon.submit(many_lines(100, std::string(200, 'x') + " "));
  const Json batch = daemon.wait(job);
  const Json& prefix = batch["batchmill"]["prefix"];
  EXPECT_GT(prefix["possible_tokens"].get<std::uint64_t>(), 0u);
  EXPECT_EQ(prefix["possible_tokens"], prefix["achieved_tokens"]);
  daemon.stop();
}

TEST(DaemonTest, LetsBadLinesFailAloneInAnyOrder) {
  TestDaemon daemon;
  daemon.start();
  const std::string content = chat_line("a", "one") + "{broken\n" + "\n" + chat_line("a", "again") +
                              R"({"custom_id":"u","method":"POST",)" +
                              R"("url":"/v1/none","body":{}})" + "\n" + chat_line("b", "two");
  const std::string job = daemon.submit(content);
  const Json batch = daemon.wait(job);
  EXPECT_EQ(batch["status"], "completed");
  EXPECT_EQ(batch["request_counts"], Json({{"total", 5}, {"completed", 2}, {"failed", 3}}));
  std::map<std::uint64_t, std::string> codes;
  for (const Json& line : daemon.results(job)) {
    if (!line["error"].is_null()) codes[line["error"]["line"]] = line["error"]["code"];
  }
  EXPECT_EQ(codes,
            (std::map<std::uint64_t, std::string>{
                {2, "invalid_json_line"}, {4, "duplicate_custom_id"}, {5, "unsupported_url"}}));
  daemon.stop();
}

TEST(DaemonTest, CountsLinesOfWhichAMessageHoldsMany) {
  TestDaemon daemon;
  daemon.start();
  constexpr int kBlankLines = 300'000;  // several groups
  const std::string blank(kBlankLines, '\n');
  const std::string job = daemon.submit(blank + many_lines(2) + "x\n" + blank + "y\n");
  EXPECT_EQ(daemon.wait(job)["request_counts"],
            Json({{"total", 4}, {"completed", 2}, {"failed", 2}}));
  std::vector<int> failed;
  for (const Json& line : daemon.results(job)) {
    if (!line["error"].is_null()) failed.push_back(line["error"]["line"]);
  }
  EXPECT_EQ(failed, (std::vector<int>{kBlankLines + 3, 2 * kBlankLines + 4}));
  daemon.stop();
}

TEST(DaemonTest, RunsNothingOfAStrictJobWithABadLine) {
  TestDaemon daemon;
  daemon.start();
  const std::string job =
      daemon.submit(many_lines(20) + "\n\n\n{broken\n" + many_lines(1), {{"strict", true}});
  const Json batch = daemon.wait(job);
  EXPECT_EQ(batch["status"], "failed");
  ASSERT_EQ(batch["errors"]["data"].size(), 2u);
  EXPECT_EQ(batch["errors"]["data"][0]["line"], 24);
  EXPECT_EQ(batch["errors"]["data"][0]["code"], "invalid_json_line");
  EXPECT_EQ(batch["errors"]["data"][1]["line"], 25);
  EXPECT_EQ(batch["errors"]["data"][1]["code"], "duplicate_custom_id");
  EXPECT_EQ(daemon.num_rows(), 0);
  EXPECT_EQ(daemon.wait(daemon.submit(many_lines(20), {{"strict", true}}))["status"], "completed");
  daemon.stop();
}

TEST(DaemonTest, KeepsFinishedLinesOfACancelledJob) {
  TestDaemon::Options options;
  options.engine.max_num_seqs = 4;
  TestDaemon daemon(options);
  daemon.start();
  const std::string job = daemon.submit(many_lines(2000));
  daemon.wait_until(job, [](const Json& now) { return now["request_counts"]["completed"] > 10; });
  const Json answer = daemon.request({{"what", "cancel"}, {"job", job}});
  EXPECT_TRUE(answer["changed"].get<bool>());
  const Json batch = daemon.wait(job);
  EXPECT_EQ(batch["status"], "cancelled");
  const std::vector<Json> lines = daemon.results(job);
  expect_each_once(lines, 2000);
  int completed = 0;
  for (const Json& line : lines) {
    if (line["error"].is_null()) {
      ++completed;
    } else {
      EXPECT_EQ(line["error"]["code"], "batch_cancelled");
    }
  }
  EXPECT_GT(completed, 10);
  EXPECT_LT(completed, 2000);
  EXPECT_EQ(batch["request_counts"]["completed"], completed);
  EXPECT_EQ(batch["request_counts"]["failed"], 2000 - completed);
  // Cancelling again changes nothing; the daemon goes on with other jobs.
  EXPECT_FALSE(daemon.request({{"what", "cancel"}, {"job", job}})["changed"].get<bool>());
  EXPECT_EQ(daemon.wait(daemon.submit(many_lines(5)))["status"], "completed");
  daemon.stop();
}

TEST(DaemonTest, GoesOnWhereItStopped) {
  TestDaemon::Options options;
  options.engine.max_num_seqs = 4;
  TestDaemon daemon(options);
  daemon.start();
  const std::string job = daemon.submit(many_lines(1000));
  daemon.wait_until(job, [](const Json& now) { return now["request_counts"]["completed"] > 10; });
  daemon.stop();
  daemon.start();
  EXPECT_LT(daemon.batch(job)["request_counts"]["completed"], 1000);
  EXPECT_EQ(daemon.wait(job)["status"], "completed");
  expect_each_once(daemon.results(job), 1000);
  daemon.stop();
}

TEST(DaemonTest, AdmitsNothingOfAPausedJob) {
  TestDaemon::Options options;
  options.engine.max_num_seqs = 2;
  TestDaemon daemon(options);
  daemon.start();
  const std::string job = daemon.submit(many_lines(500));
  daemon.request({{"what", "pause"}, {"job", job}});
  // What is running finishes; then another job has the device to itself and ends first.
  const std::string other = daemon.submit(many_lines(50));
  EXPECT_EQ(daemon.wait(other)["status"], "completed");
  const Json paused = daemon.wait_until(
      job, [](const Json& now) { return now["batchmill"]["lines_running"] == 0; });
  EXPECT_LT(paused["request_counts"]["completed"], 500);
  EXPECT_TRUE(paused["batchmill"]["paused"].get<bool>());
  daemon.request({{"what", "resume"}, {"job", job}});
  EXPECT_EQ(daemon.wait(job)["status"], "completed");
  daemon.stop();
}

TEST(DaemonTest, FinishesMixedLinesInAPoolLittleLargerThanTheLongest) {
  TestDaemon::Options options;
  options.block_size_tokens = 16;
  options.num_blocks = 24;  // 384 tokens; the longest line takes about 320
  TestDaemon daemon(options);
  daemon.start();
  std::string content;
  for (int i = 0; i < 64; ++i) {
    content += chat_line(fmt::format("line-{}", i),
                         std::string(static_cast<std::size_t>(1 + i * 2), 'q'), 8 + i * 2);
  }
  const std::string job = daemon.submit(content);
  EXPECT_EQ(daemon.wait(job)["request_counts"]["completed"], 64);
  daemon.stop();
}

TEST(DaemonTest, TakesTheSameContentUnderTheSameKeyOnce) {
  TestDaemon daemon;
  daemon.start();
  const std::string job = daemon.submit(many_lines(10), {{"key", "k"}});
  EXPECT_EQ(daemon.submit(many_lines(10), {{"key", "k"}}), job);
  daemon.wait(job);
  EXPECT_EQ(daemon.submit(many_lines(10), {{"key", "k"}}), job);
  EXPECT_NE(daemon.submit(many_lines(10), {{"key", "other"}}), job);
  daemon.stop();
}

TEST(DaemonTest, RefusesAnEmptyFile) {
  TestDaemon daemon;
  daemon.start();
  for (const std::string& content : {std::string(), std::string("\n  \n")}) {
    try {
      daemon.submit(content);
      FAIL() << "taken";
    } catch (const RemoteError& error) {
      EXPECT_EQ(error.code(), "empty_file");
    }
  }
  daemon.stop();
}

// Starts a job, stops in the middle of it, when all its lines are planned, and leaves the daemon
// stopped.
std::string half_done_job(TestDaemon& daemon, int count) {
  daemon.start();
  const std::string job = daemon.submit(many_lines(count));
  daemon.wait_until(job, [](const Json& now) {
    return now["request_counts"]["completed"] > 5 &&
           !now["batchmill"]["prefix"]["possible_tokens"].is_null();
  });
  daemon.stop();
  return job;
}

TEST(DaemonTest, PreparesLinesAgainWhenTheirModelHasChanged) {
  TestDaemon::Options options;
  options.engine.max_num_seqs = 2;
  TestDaemon daemon(options);
  const std::string job = half_done_job(daemon, 600);
  daemon.options().model_file = "model-q8_0.gguf";
  daemon.start();
  const Json batch = daemon.wait(job);
  EXPECT_EQ(batch["request_counts"]["completed"], 600);
  std::set<std::string> fingerprints;
  const std::vector<Json> lines = daemon.results(job);
  expect_each_once(lines, 600);
  for (const Json& line : lines) {
    fingerprints.insert(line["response"]["body"]["system_fingerprint"].get<std::string>());
  }
  EXPECT_EQ(fingerprints.size(), 2u);
  daemon.stop();
}

TEST(DaemonTest, ParksLinesOfAModelThatIsNotConfigured) {
  TestDaemon::Options options;
  options.engine.max_num_seqs = 2;
  TestDaemon daemon(options);
  const std::string job = half_done_job(daemon, 600);
  daemon.options().model_name = "another";
  daemon.options().model_file = "model-q8_0.gguf";
  daemon.start();
  const Json parked =
      daemon.wait_until(job, [](const Json& now) { return !now["batchmill"]["warnings"].empty(); });
  EXPECT_EQ(parked["batchmill"]["warnings"][0], "model 'tiny' is not configured: its lines wait");
  // Other jobs run; the parked one can be cancelled, or goes on when its model is back.
  EXPECT_EQ(daemon.wait(daemon.submit(many_lines(5)))["status"], "completed");
  daemon.stop();
  daemon.options() = TestDaemon::Options();
  daemon.start();
  EXPECT_EQ(daemon.wait(job)["request_counts"]["completed"], 600);
  daemon.stop();
}

TEST(DaemonTest, AnswersFromItsFirstMomentOn) {
  TestDaemon daemon;
  for (int i = 0; i < 20; ++i) {
    daemon.start();
    EXPECT_TRUE(daemon.request({{"what", "list"}}).contains("batches"));
    daemon.stop(std::chrono::milliseconds(0));
  }
}

// Writes a job of two lines into the store of a daemon that does not run; the first is planned as
// `entry` says. Returns the job's id.
std::string store_job(const TestDaemon& daemon, const std::string& first, PlanEntry entry) {
  const DataDirectory directory(daemon.data_directory() + "/data", DataDirectory::Lock::kExclusive);
  const auto store = JobStore::open(directory.store_path(), {}, JobStore::Mode::kReadWrite);
  const JobId id = store->open_job({}, 1'700'000'000'000).job.id;
  std::vector<StoredLine> lines = {{1, first}, {2, chat_line("second", "x")}};
  for (StoredLine& line : lines) line.bytes.pop_back();  // the line end
  store->append_lines(id, lines, 1'000, 0);
  store->seal(id, "", 1'700'000'000);
  JobStore::Prepared prepared;
  prepared.first_line = prepared.last_line = 1;
  entry.key = {id, 1};
  entry.prompts = {{1, 2, 3}};
  prepared.entries.push_back(std::move(entry));
  store->commit_prepared(id, std::move(prepared), 1'700'000'000);
  return id.to_string();
}

TEST(DaemonTest, FailsALineWhosePlanEntryCannotBeRead) {
  TestDaemon daemon;
  PlanEntry entry;
  entry.model = "tiny";
  entry.fingerprint =
      Model::open(BATCHMILL_TEST_DATA "/models/llama3/model-q4_0.gguf")->fingerprint();
  entry.request = "no LineWork";
  const std::string job = store_job(daemon, chat_line("unreadable", "x"), std::move(entry));
  daemon.start();
  const Json batch = daemon.wait(job);
  EXPECT_EQ(batch["request_counts"], Json({{"total", 2}, {"completed", 1}, {"failed", 1}}));
  const Json line = daemon.results(job).at(0);
  EXPECT_EQ(line["custom_id"], "unreadable");
  EXPECT_EQ(line["error"]["code"], "internal_error");
  EXPECT_EQ(daemon.fatal_reason(), "");
  daemon.stop();
}

std::size_t entries_of(const char* directory) {
  return static_cast<std::size_t>(
      std::distance(std::filesystem::directory_iterator(directory), {}));
}

TEST(DaemonTest, StartsAndStopsAHundredTimesAndLeavesNothing) {
  TestDaemon daemon;
  std::size_t threads = 0;
  std::size_t files = 0;
  std::size_t heap_bytes = 0;
  for (int i = 0; i < 100; ++i) {
    daemon.start();
    // Some stop at once, some in the middle of a job, some after one.
    if (i % 3 == 1) daemon.submit(many_lines(20));
    if (i % 3 == 2) daemon.wait(daemon.submit(many_lines(20)));
    daemon.stop(std::chrono::milliseconds(0));
    const std::size_t used_bytes = ::mallinfo2().uordblks;
    if (i == 9) {  // what is made once has been made
      threads = entries_of("/proc/self/task");
      files = entries_of("/proc/self/fd");
      heap_bytes = used_bytes;
    } else if (i > 9) {
      EXPECT_EQ(entries_of("/proc/self/task"), threads) << "after " << i;
      EXPECT_EQ(entries_of("/proc/self/fd"), files) << "after " << i;
    }
    if (i == 99) {
      EXPECT_LT(used_bytes, heap_bytes + (1 << 20));
    }
  }
}

}  // namespace
}  // namespace batchmill::testing
