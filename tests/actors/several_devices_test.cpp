// Several devices run one model: what each does, and what happens when one is lost.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "actors/context.h"
#include "tests/actors/test_daemon.h"

namespace batchmill::testing {
namespace {

using ::testing::Contains;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

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

TestDaemon::Options all_lost(const std::atomic<bool>* fail) {
  TestDaemon::Options options = two_devices();
  options.before_step_of = [fail](int, std::int64_t step) {
    if (*fail && step >= 2) throw InjectedFailure();
  };
  return options;
}

std::vector<std::string> warnings_of(const Json& batch) {
  return batch["batchmill"]["warnings"].get<std::vector<std::string>>();
}

TEST(SeveralDevicesTest, LinesOfTheLastOneLostWaitForAnotherStart) {
  std::atomic<bool> fail = true;
  TestDaemon daemon(all_lost(&fail));
  daemon.start();
  const std::string job = daemon.submit(job_content());
  daemon.wait_for([&] { return !daemon.waiting_reason().empty(); });
  EXPECT_THAT(
      daemon.waiting_reason(),
      ContainsRegex("^the device scripted:[01] is lost \\(3 steps in a row failed: injected "
                    "device failure\\): the lines of tiny wait until the process is started "
                    "anew, which tries the device again$"));
  // What asks hears why, and new jobs are taken.
  EXPECT_THAT(warnings_of(daemon.batch(job)), Contains(daemon.waiting_reason()));
  const std::string later = daemon.submit(job_content());
  const Json waiting =
      daemon.wait_until(later, [](const Json& batch) { return batch["status"] == "in_progress"; });
  EXPECT_EQ(waiting["request_counts"]["completed"], 0);
  EXPECT_THAT(warnings_of(waiting), Contains(daemon.waiting_reason()));
  int waits = 0;
  const Json devices = daemon.request({{"what", "devices"}})["devices"];
  for (const Json& device : devices) {
    EXPECT_TRUE(device["trouble"].is_string());
    waits += device["lines_wait"].get<bool>() ? 1 : 0;
  }
  EXPECT_EQ(waits, 1);
  EXPECT_EQ(daemon.fatal_reason(), "");
  daemon.stop(std::chrono::milliseconds(0));

  fail = false;
  daemon.start();
  EXPECT_EQ(daemon.wait(job)["request_counts"]["completed"], kLines);
  EXPECT_EQ(daemon.wait(later)["request_counts"]["completed"], kLines);
  EXPECT_TRUE(warnings_of(daemon.batch(job)).empty());
  lines_by_device(daemon, job);
  daemon.stop();
}

TEST(SeveralDevicesTest, ASpareTakesThePlaceOfTheLastOneLost) {
  const std::atomic<bool> fail = true;
  TestDaemon::Options options = all_lost(&fail);
  options.num_spare_blocks = options.num_blocks;
  TestDaemon daemon(options);
  daemon.start();
  const std::string job = daemon.submit(job_content());
  EXPECT_EQ(daemon.wait(job)["request_counts"]["completed"], kLines);
  EXPECT_GT(lines_by_device(daemon, job)["spare:0"], kLines / 2);
  // Also after the other actors were started anew.
  caf::anon_send_exit(daemon.daemon().directory().get<WriterActor>(), caf::exit_reason::kill);
  const std::string later = daemon.submit(job_content());
  EXPECT_EQ(daemon.wait(later)["request_counts"]["completed"], kLines);
  EXPECT_EQ(lines_by_device(daemon, later)["spare:0"], kLines);
  const Json devices = daemon.request({{"what", "devices"}})["devices"];
  EXPECT_THAT(devices.dump(),
              HasSubstr("the lines of tiny run on spare:0 until the process is started anew"));
  EXPECT_THAT(devices.dump(), Not(HasSubstr("\"lines_wait\":true")));
  EXPECT_EQ(daemon.waiting_reason(), "");
  daemon.stop();
}

TEST(SeveralDevicesTest, ASpareMustHoldWhatLinesWerePromised) {
  const std::atomic<bool> fail = true;
  TestDaemon::Options options = all_lost(&fail);
  options.max_context_tokens = 512;
  options.num_spare_blocks = 8;
  TestDaemon daemon(options);
  daemon.start();
  daemon.submit(job_content());
  daemon.wait_for([&] { return !daemon.waiting_reason().empty(); });
  EXPECT_THAT(daemon.waiting_reason(),
              HasSubstr("; spare:0 has room for a KV cache of 128 tokens, and lines may need 512"));
  daemon.stop(std::chrono::milliseconds(0));
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
