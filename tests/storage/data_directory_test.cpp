#include "storage/data_directory.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "storage/error.h"

namespace batchmill {
namespace {

const std::string kLongPath = "/" + std::string(200, 'd');

// Sets an environment variable, or takes it away, until the end of a scope.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) {
    const char* old = std::getenv(name);
    had_ = old != nullptr;
    if (had_) old_ = old;
    set(value);
  }
  ~Variable() { set(had_ ? old_.c_str() : nullptr); }

 private:
  void set(const char* value) { value != nullptr ? ::setenv(name_, value, 1) : ::unsetenv(name_); }
  const char* name_;
  bool had_ = false;
  std::string old_;
};

TEST(ControlSocketTest, IsInTheDataDirectoryWhereItsPathFits) {
  EXPECT_EQ(DataDirectory::control_endpoint("/data"), "ipc:///data/control.sock");
}

TEST(ControlSocketTest, IsElseInADirectoryOfTheUsersOwn) {
  const Variable runtime("XDG_RUNTIME_DIR", nullptr);
  const std::string own = "/tmp/batchmill-" + std::to_string(::getuid());
  ::mkdir(own.c_str(), 0777);
  ASSERT_EQ(::chmod(own.c_str(), 0755), 0);
  const std::string endpoint = DataDirectory::control_endpoint(kLongPath);
  EXPECT_TRUE(endpoint.starts_with("ipc://" + own + "/batchmill-control-")) << endpoint;
  EXPECT_NE(endpoint, DataDirectory::control_endpoint(kLongPath + "e"));
  struct stat status {};
  ASSERT_EQ(::lstat(own.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0700u);
}

TEST(ControlSocketTest, IsElseWhereTheSystemSays) {
  const Variable runtime("XDG_RUNTIME_DIR", "/run/user/1");
  EXPECT_TRUE(DataDirectory::control_endpoint(kLongPath).starts_with(
      "ipc:///run/user/1/batchmill-control-"));
  const Variable longer("XDG_RUNTIME_DIR", kLongPath.c_str());
  EXPECT_THROW(DataDirectory::control_endpoint(kLongPath), StorageError);
}

}  // namespace
}  // namespace batchmill
