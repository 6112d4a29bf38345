#include "config/data_directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/support/temporary_directory.h"

namespace batchmill {
namespace {

namespace fs = std::filesystem;

TEST(DataDirectoryTest, FollowsTheOrderOfPrecedence) {
  DaemonConfig config;
  Environment environment{{"HOME", "/h"}};
  EXPECT_EQ(data_directory("", config, environment), "/h/.local/state/batchmill");
  environment["XDG_STATE_HOME"] = "/x";
  EXPECT_EQ(data_directory("", config, environment), "/x/batchmill");
  config.storage.path = "/file";
  EXPECT_EQ(data_directory("", config, environment), "/file");
  environment["BATCHMILL_DATA"] = "/env";
  EXPECT_EQ(data_directory("", config, environment), "/env");
  EXPECT_EQ(data_directory("/flag/", config, environment), "/flag");
}

TEST(DataDirectoryTest, IsAbsolute) {
  EXPECT_EQ(data_directory("d", {}, {}), (fs::canonical(fs::current_path()) / "d").string());
}

TEST(DataDirectoryTest, NeedsARuleThatApplies) {
  try {
    data_directory("", {}, {});
    FAIL() << "no directory can be known";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("--data"));
  }
}

TEST(DataDirectoryTest, MakesPrivateDirectories) {
  TemporaryDirectory root;
  const fs::path path = root.path("a/b");
  make_private_directory(path.string());
  struct stat status {};
  ASSERT_EQ(::stat(path.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0700u);
}

TEST(DataDirectoryTest, MakesAnExistingDirectoryPrivate) {
  TemporaryDirectory root;
  const fs::path path = root.path("open");
  ASSERT_EQ(::mkdir(path.c_str(), 0755), 0);
  ASSERT_EQ(::chmod(path.c_str(), 0755), 0);
  make_private_directory(path.string());
  struct stat status {};
  ASSERT_EQ(::stat(path.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0700u);
}

TEST(DataDirectoryTest, RefusesAFileInItsPlace) {
  TemporaryDirectory root;
  const std::string file = root.write("file", "");
  EXPECT_THROW(make_private_directory(file), ConfigError);
  EXPECT_THROW(make_private_directory(file + "/below"), ConfigError);
}

TEST(EndpointTest, IsTheDataDirectorysSocket) {
  EXPECT_EQ(default_queue_endpoint("/data", {}), "ipc:///data/queue.sock");
}

TEST(EndpointTest, MovesWhenThePathIsTooLongForASocket) {
  const Environment environment{{"XDG_RUNTIME_DIR", "/run/user/1"}};
  const std::string name = "/queue.sock";
  const std::string fits = "/" + std::string(106 - name.size(), 'd');
  const std::string over = fits + "d";
  EXPECT_EQ(default_queue_endpoint(fits, environment), "ipc://" + fits + name);
  const std::string moved = default_queue_endpoint(over, environment);
  EXPECT_THAT(moved, testing::MatchesRegex("ipc:///run/user/1/batchmill-[0-9a-f]{16}\\.sock"));
  EXPECT_EQ(moved, default_queue_endpoint(over + "/", environment));
  EXPECT_NE(moved, default_queue_endpoint(over + "e", environment));
}

TEST(EndpointTest, FallsBackToAPrivateDirectoryUnderTmp) {
  const std::string endpoint = default_queue_endpoint("/" + std::string(200, 'd'), {});
  const std::string own = "/tmp/batchmill-" + std::to_string(::getuid());
  EXPECT_THAT(endpoint, testing::StartsWith("ipc://" + own + "/batchmill-"));
  prepare_endpoint(endpoint);
  struct stat status {};
  ASSERT_EQ(::lstat(own.c_str(), &status), 0);
  EXPECT_TRUE(S_ISDIR(status.st_mode));
  EXPECT_EQ(status.st_mode & 0777, 0700u);
}

TEST(EndpointTest, RefusesARuntimeDirectoryThatIsTooLong) {
  const std::string path = "/" + std::string(200, 'd');
  EXPECT_THROW(default_queue_endpoint(path, {{"XDG_RUNTIME_DIR", path}}), ConfigError);
}

TEST(EndpointTest, ServesTheDefaultBesidesTheConfiguredEndpoint) {
  DaemonConfig config;
  EXPECT_THAT(queue_endpoints(config, "/data", {}), testing::ElementsAre("ipc:///data/queue.sock"));
  config.queue.endpoint = "tcp://127.0.0.1:5559";
  EXPECT_THAT(queue_endpoints(config, "/data", {}),
              testing::ElementsAre("ipc:///data/queue.sock", "tcp://127.0.0.1:5559"));
  config.queue.endpoint = "ipc:///data/queue.sock";
  EXPECT_THAT(queue_endpoints(config, "/data", {}), testing::SizeIs(1));
}

}  // namespace
}  // namespace batchmill
