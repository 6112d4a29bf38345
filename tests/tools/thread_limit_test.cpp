#include "tools/thread_limit.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <fstream>

#include "tests/support/sanitized_build.h"
#include "tools/exit_code.h"

namespace batchmill {
namespace {

TEST(ThreadLimitTest, PassesWhatCanBeStarted) { EXPECT_NO_THROW(check_thread_limit(50)); }

TEST(ThreadLimitTest, SaysHowManyAreMissing) {
  if (kSanitizedBuild) GTEST_SKIP() << "skipped: a sanitizer takes all addresses";
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_AS, &before), 0);
  std::uint64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  rlimit few = before;
  few.rlim_cur = pages * 4096 + (100 << 20);  // the stacks of a dozen threads
  ASSERT_EQ(::setrlimit(RLIMIT_AS, &few), 0);
  std::string said;
  int exit_code = kExitDone;
  try {
    check_thread_limit(500);
  } catch (const ToolError& error) {
    said = error.what();
    exit_code = error.exit_code();
  }
  ASSERT_EQ(::setrlimit(RLIMIT_AS, &before), 0);
  EXPECT_EQ(exit_code, kExitUsage);
  EXPECT_NE(said.find("up to 500 are needed"), std::string::npos) << said;
  EXPECT_NO_THROW(check_thread_limit(50));
}

}  // namespace
}  // namespace batchmill
