// A process that dies before or after any write leaves a store that is whole, and the work goes on
// to the same end. This program compiles storage/database_write.cpp itself, with its fail points.
#include "tests/support/fail_point.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "tests/storage/store_fixture.h"
#include "tests/storage/store_scenario.h"
#include "tests/support/sanitized_build.h"

namespace batchmill::testing {
namespace {

// The exit code, or minus the signal, of a child that has the store. This process never opens one
// to write: the threads that RocksDB then starts would be missing in the children.
template <typename Work>
int in_child(const std::string& directory, Work work) {
  const pid_t child = fork();
  if (child == 0) {
    StorageOptions options = small_options();
    options.sync = false;  // what a process has written outlives it
    const auto store = JobStore::open(directory, options, JobStore::Mode::kReadWrite);
    _exit(work(*store));
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

int run_in_child(const std::string& directory, const std::string& fail_point) {
  set_fail_point(fail_point);
  const int end = in_child(directory, [](JobStore& store) {
    StoreScenario().run(store);
    return 0;
  });
  set_fail_point("");
  return end;
}

std::string summary_of(const std::string& directory) {
  const auto store = JobStore::open(directory, small_options(), JobStore::Mode::kReadOnly);
  return StoreScenario::summary(*store);
}

const std::string& undisturbed_summary() {
  static const std::string summary = [] {
    const TemporaryDirectory directory;
    EXPECT_EQ(run_in_child(directory.path(), ""), 0);
    return summary_of(directory.path());
  }();
  return summary;
}

class FailPointTest : public ::testing::TestWithParam<const char*> {};

TEST_P(FailPointTest, DeathBeforeOrAfterAWriteLosesNothing) {
  if (kThreadSanitizedBuild) GTEST_SKIP() << "skipped: forks a process that has had threads";
  const std::string name = GetParam();
  for (const char* point : {".before:1", ".after:1", ".before:2", ".after:2"}) {
    SCOPED_TRACE(name + point);
    const TemporaryDirectory directory;
    const int end = run_in_child(directory.path(), name + point);
    // Some writes are made once.
    if (std::string(point).ends_with('2') && end == 0) continue;
    ASSERT_EQ(end, -SIGKILL) << "there is no such point";
    EXPECT_EQ(in_child(directory.path(),
                       [](JobStore& store) {
                         for (const std::string& problem : store.check().problems)
                           ADD_FAILURE() << problem;
                         return store.check().problems.empty() ? 0 : 1;
                       }),
              0);
    ASSERT_EQ(run_in_child(directory.path(), ""), 0);
    EXPECT_EQ(summary_of(directory.path()), undisturbed_summary());
  }
}

INSTANTIATE_TEST_SUITE_P(AllWrites, FailPointTest,
                         ::testing::Values("set_schema", "open_job", "write_lines", "sync",
                                           "seal_empty", "seal", "truncate", "commit_prepared",
                                           "claim_ids", "set_strict_checked", "measure_prefixes",
                                           "replace_plan", "drain_plan", "begin_attempts",
                                           "clear_attempts", "clear_all_attempts", "commit_results",
                                           "set_paused", "end_job", "prune", "rebuild_wipe",
                                           "rebuild_part", "rebuild_job", "rebuild_done"),
                         [](const auto& write) { return std::string(write.param); });

TEST(FailPointScenarioTest, EndsAsItShould) {
  const std::string& summary = undisturbed_summary();
  EXPECT_NE(summary.find("main completed  1200 1080 120"), std::string::npos) << summary;
  EXPECT_NE(summary.find("strict completed  5 5 0"), std::string::npos) << summary;
  EXPECT_NE(summary.find("cut failed truncated_input 7 7 0"), std::string::npos) << summary;
  EXPECT_NE(summary.find("cancelled cancelled batch_cancelled 9 1 8"), std::string::npos)
      << summary;
  EXPECT_NE(summary.find("\n 4 1221 1213 0"), std::string::npos) << summary;
}

}  // namespace
}  // namespace batchmill::testing
