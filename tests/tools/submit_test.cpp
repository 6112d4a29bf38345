// `batchmill submit` and `resubmit` as users call them, with a server of the test's own.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>

#include "queue/job_server.h"
#include "tests/support/temporary_directory.h"
#include "tools/exit_code.h"

namespace batchmill {
namespace {

std::string text_of_file(const std::string& path) {
  std::ifstream file(path);
  return std::string((std::istreambuf_iterator<char>(file)), {});
}

TEST(SubmitTest, SaysWhatGoesOnWhenTheDaemonSDiskStaysFull) {
  const TemporaryDirectory directory;
  const std::string input = directory.path() + "/in.jsonl";
  std::ofstream(input) << "{}\n";
  QueueOptions options;
  options.endpoints = {"ipc://" + directory.path() + "/queue.sock"};
  JobServer server(options, "test", [](JobServer& self, PeerId peer, WireMessage message) {
    self.send(peer, {error_header(message.header, "storage_full", "no space left"), "", false});
  });
  const std::string errors = directory.path() + "/errors";
  const std::string command = std::string(BATCHMILL_BIN) + "/batchmill submit " + input +
                              " --timeout 1s --data " + directory.path() + "/data --endpoint " +
                              options.endpoints[0] + " > /dev/null 2> " + errors;
  const int status = std::system(command.c_str());
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), kExitStore);
  const std::string said = text_of_file(errors);
  EXPECT_NE(said.find("no space left; waiting up to 1 s for space\n"), std::string::npos) << said;
  EXPECT_NE(said.find("this goes on where it stopped:\n  batchmill submit " + input +
                      " --idempotency-key "),
            std::string::npos)
      << said;
}

}  // namespace
}  // namespace batchmill
