// Several devices run one model: what each does, and what happens when one is lost.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <set>

#include "actors/context.h"
#include "tests/actors/test_daemon.h"

namespace batchmill::testing {
namespace {

constexpr int kLines = 400;

TestDaemon::Options two_devices() {
  TestDaemon::Options options;
  options.num_devices = 2;
  options.engine.max_num_seqs = 8;
  return options;
}

std::string job_content() {
  std::string content;
  for (int i = 0; i < kLines; ++i) {
    content += chat_line(fmt::format("line-{}", i), fmt::format("family {}", i % 20), 6);
  }
  return content;
}

// How many lines each device has ended; each line came out once.
std::map<std::string, int> lines_by_device(TestDaemon& daemon, const std::string& job) {
  std::set<std::string> ids;
  std::map<std::string, int> counts;
  for (const Json& line : daemon.results(job)) {
    EXPECT_TRUE(ids.insert(line["custom_id"].get<std::string>()).second);
    EXPECT_TRUE(line["error"].is_null());
    const Json life = daemon.request(
        {{"what", "explain"}, {"job", job}, {"custom_id", line["custom_id"]}})["line"];
    ++counts[life["device"].get<std::string>()];
  }
  EXPECT_EQ(ids.size(), static_cast<std::size_t>(kLines));
  return counts;
}

TEST(SeveralDevicesTest, ShareAJob) {
  TestDaemon daemon(two_devices());
  daemon.start();
  const std::string job = daemon.submit(job_content());
  EXPECT_EQ(daemon.wait(job)["request_counts"]["completed"], kLines);
  std::map<std::string, int> counts = lines_by_device(daemon, job);
  EXPECT_EQ(counts.size(), 2u);
  EXPECT_GT(counts["scripted:0"], kLines / 10);
  EXPECT_GT(counts["scripted:1"], kLines / 10);
  daemon.stop();
}

TEST(SeveralDevicesTest, GoOnWithoutOneThatIsLost) {
  TestDaemon::Options options = two_devices();
  std::atomic<int> failures = 0;
  options.before_step_of = [&](int device, std::int64_t step) {
    if (device != 1 || step < 4) return;
    ++failures;
    throw InjectedFailure();
  };
  TestDaemon daemon(options);
  daemon.start();
  const std::string job = daemon.submit(job_content());
  EXPECT_EQ(daemon.wait(job)["request_counts"]["completed"], kLines);
  EXPECT_EQ(failures, 3);  // tried again twice, then never
  EXPECT_GT(lines_by_device(daemon, job)["scripted:0"], kLines / 2);
  EXPECT_EQ(daemon.fatal_reason(), "");
  // A later job runs, and so does one after the other actors were started anew.
  EXPECT_EQ(daemon.wait(daemon.submit(job_content()))["request_counts"]["completed"], kLines);
  caf::anon_send_exit(daemon.daemon().directory().get<WriterActor>(), caf::exit_reason::kill);
  EXPECT_EQ(daemon.wait(daemon.submit(job_content()))["request_counts"]["completed"], kLines);
  EXPECT_EQ(failures, 3);
  daemon.stop();
}

TEST(SeveralDevicesTest, TheLastOneLostEndsTheDaemonAndKeepsTheLines) {
  TestDaemon::Options options = two_devices();
  std::atomic<bool> fail = true;
  options.before_step_of = [&](int, std::int64_t step) {
    if (fail && step >= 2) throw InjectedFailure();
  };
  TestDaemon daemon(options);
  daemon.start();
  const std::string job = daemon.submit(job_content());
  daemon.wait_for([&] { return !daemon.fatal_reason().empty(); });
  EXPECT_NE(daemon.fatal_reason().find("is lost and its model has no other one"), std::string::npos)
      << daemon.fatal_reason();
  daemon.stop(std::chrono::milliseconds(0));

  fail = false;
  daemon.start();
  EXPECT_EQ(daemon.wait(job)["request_counts"]["completed"], kLines);
  lines_by_device(daemon, job);
  daemon.stop();
}

TEST(SmallMemoryTest, StepsBecomeSmaller) {
  TestDaemon::Options options = two_devices();
  options.engine.max_num_batched_tokens = 256;
  options.max_rows = 20;
  TestDaemon daemon(options);
  daemon.start();
  const std::string job = daemon.submit(job_content());
  EXPECT_EQ(daemon.wait(job)["request_counts"]["completed"], kLines);
  EXPECT_EQ(lines_by_device(daemon, job).size(), 2u);
  EXPECT_EQ(daemon.fatal_reason(), "");
  daemon.stop();
}

}  // namespace
}  // namespace batchmill::testing
