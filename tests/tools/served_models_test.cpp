#include "tools/served_models.h"

#include <gtest/gtest.h>

#include "tools/exit_code.h"

namespace batchmill {
namespace {

TEST(ServedModelsTest, AFatalFaultEndsTheProcessWithItsReason) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const DaemonOptions options = daemon_options(DaemonConfig{}, "/nowhere", {});
  EXPECT_EXIT(options.on_fatal("the writer died"), ::testing::ExitedWithCode(kExitStore),
              "the writer died");
}

}  // namespace
}  // namespace batchmill
