#include "queue/allowed_clients.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>

#include "queue/curve_keys.h"

namespace {
int num_synced_directories = 0;
}

// In front of the system's: sees what is synced.
extern "C" int fsync(int fd) {
  struct stat status {};
  if (::fstat(fd, &status) == 0 && S_ISDIR(status.st_mode)) ++num_synced_directories;
  return static_cast<int>(::syscall(SYS_fsync, fd));
}
#include "queue/endpoint.h"

namespace batchmill {
namespace {

class AllowedClientsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::path(::testing::TempDir()) / ("keys_" + std::to_string(::getpid()));
    std::filesystem::create_directories(folder_);
    path_ = (folder_ / "allowed").string();
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  static std::string message_of(const std::function<void()>& action) {
    try {
      action();
    } catch (const std::runtime_error& error) {
      return error.what();
    }
    return "";
  }

  std::filesystem::path folder_;
  std::string path_;
};

TEST_F(AllowedClientsTest, ReadsWhatItWrites) {
  Caller plain, rich;
  plain.key = new_curve_keys().public_key;
  plain.admin = false;
  rich = {new_curve_keys().public_key, "night.ly-1", true, 1, 22, 333};
  EXPECT_EQ(parse_allowed_clients("# people\n\n" + allowed_client_line(plain) +
                                  allowed_client_line(rich)),
            (std::vector<Caller>{plain, rich}));
}

TEST_F(AllowedClientsTest, NamesTheLineThatIsWrong) {
  const std::string key = new_curve_keys().public_key;
  for (const std::string& rest :
       {std::string("admn"), std::string("name="), std::string("name=a=b"),
        std::string("max_jobs=0"), std::string("max_lines=-1"), std::string("max_bytes=1k"),
        std::string("max_files=1")}) {
    const std::string message =
        message_of([&] { parse_allowed_clients("# one\n" + key + " " + rest + "\n"); });
    EXPECT_NE(message.find("line 2: "), std::string::npos) << rest;
    EXPECT_NE(message.find(rest), std::string::npos) << message;
  }
  EXPECT_NE(message_of([&] { parse_allowed_clients(key.substr(1)); }), "");
  EXPECT_NE(message_of([&] { parse_allowed_clients(key.substr(1) + " "); }), "");
  EXPECT_NE(message_of([&] { parse_allowed_clients(key + "\n" + key); }), "");
}

TEST_F(AllowedClientsTest, FollowsTheFile) {
  AllowedClients allowed(path_);
  EXPECT_TRUE(allowed.all().empty());
  Caller client;
  client.key = new_curve_keys().public_key;
  edit_allowed_clients(path_, [&](auto& clients) { clients.push_back(client); });
  EXPECT_EQ(allowed.find(client.key), nullptr);
  EXPECT_TRUE(allowed.refresh());
  ASSERT_NE(allowed.find(client.key), nullptr);
  EXPECT_TRUE(allowed.find(client.key)->admin);
  EXPECT_FALSE(allowed.refresh());
  struct stat status = {};
  ASSERT_EQ(::stat(path_.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);

  // A broken file says so once and changes nothing; one that is gone allows nobody.
  std::ofstream(path_) << "nonsense\n";
  EXPECT_THROW(allowed.refresh(), std::runtime_error);
  EXPECT_FALSE(allowed.refresh());
  EXPECT_NE(allowed.find(client.key), nullptr);
  std::filesystem::remove(path_);
  EXPECT_TRUE(allowed.refresh());
  EXPECT_EQ(allowed.find(client.key), nullptr);
}

TEST_F(AllowedClientsTest, ARevokedKeyStaysRevokedAfterAPowerCut) {
  int before = num_synced_directories;
  edit_allowed_clients(path_, [](auto& clients) { clients.clear(); });
  EXPECT_EQ(num_synced_directories, before + 1);
  before = num_synced_directories;
  write_secret_key(path_ + ".secret", new_curve_keys());
  EXPECT_EQ(num_synced_directories, before + 1);
}

TEST_F(AllowedClientsTest, RefusesAFileThatOthersMayWrite) {
  std::ofstream(path_) << "";
  ::chmod(path_.c_str(), 0620);
  EXPECT_NE(message_of([&] { AllowedClients allowed(path_); }).find("written by others"),
            std::string::npos);
}

TEST_F(AllowedClientsTest, KeepsASecretKeyToItsOwner) {
  const std::string file = (folder_ / "secret").string();
  const CurveKeys keys = new_curve_keys();
  const mode_t before = ::umask(0);
  write_secret_key(file, keys);
  ::umask(before);
  struct stat status = {};
  ASSERT_EQ(::stat(file.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
  EXPECT_EQ(read_secret_key(file).secret_key, keys.secret_key);
  EXPECT_EQ(read_secret_key(file).public_key, keys.public_key);
  EXPECT_NE(message_of([&] { write_secret_key(file, keys); }).find("there already"),
            std::string::npos);
  ::chmod(file.c_str(), 0640);
  const std::string message = message_of([&] { read_secret_key(file); });
  EXPECT_NE(message.find("mode 640"), std::string::npos);
  EXPECT_EQ(message.find(keys.secret_key), std::string::npos);
  ::chmod(file.c_str(), 0600);
  for (const std::string& content :
       {std::string(), keys.secret_key.substr(1), keys.secret_key + "\n" + keys.secret_key,
        keys.secret_key + "x"}) {
    std::ofstream(file) << content;
    const std::string why = message_of([&] { read_secret_key(file); });
    EXPECT_NE(why.find("holds no secret key"), std::string::npos);
    EXPECT_EQ(why.find(keys.secret_key.substr(1)), std::string::npos);
  }
}

TEST(EndpointRulesTest, ServesOtherMachinesWithKeysOnly) {
  for (const char* endpoint : {"tcp://127.0.0.1:5559", "tcp://127.8.9.1:*", "tcp://[::1]:5559",
                               "tcp://lo:5559", "ipc:///tmp/x"}) {
    EXPECT_NO_THROW(check_served_endpoint(endpoint, false)) << endpoint;
  }
  for (const char* endpoint : {"tcp://*:5559", "tcp://0.0.0.0:5559", "tcp://eth0:5559",
                               "tcp://[::]:5559", "tcp://192.168.1.1:5559",
                               "tcp://127.0.0.1.example.org:5559", "tcp://1.2.3.4;127.0.0.1:1"}) {
    EXPECT_THROW(check_served_endpoint(endpoint, false), std::invalid_argument) << endpoint;
    EXPECT_NO_THROW(check_served_endpoint(endpoint, true)) << endpoint;
  }
  for (const char* endpoint : {"inproc://x", "udp://127.0.0.1:1", "ws://127.0.0.1:1", "x"}) {
    EXPECT_THROW(check_served_endpoint(endpoint, true), std::invalid_argument) << endpoint;
  }
}

}  // namespace
}  // namespace batchmill
