#include "tools/ready_notice.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>

namespace batchmill {
namespace {

class ReadyNoticeTest : public testing::Test {
 protected:
  void TearDown() override { ::unsetenv("NOTIFY_SOCKET"); }

  // A bound datagram socket; `path` may begin with a NUL (abstract).
  static int bound_socket(const std::string& path) {
    const int fd = ::socket(AF_UNIX, SOCK_DGRAM, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path.data(), path.size());
    const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + path.size());
    EXPECT_EQ(::bind(fd, reinterpret_cast<const sockaddr*>(&address), length), 0);
    return fd;
  }
  static std::string receive(int fd) {
    char buffer[64];
    const ssize_t size = ::recv(fd, buffer, sizeof(buffer), MSG_DONTWAIT);
    ::close(fd);
    return size < 0 ? "nothing" : std::string(buffer, static_cast<std::size_t>(size));
  }
};

TEST_F(ReadyNoticeTest, WithoutASocketNobodyIsTold) {
  ::unsetenv("NOTIFY_SOCKET");
  EXPECT_TRUE(notify_service_manager("READY=1"));
}

TEST_F(ReadyNoticeTest, SendsOneDatagram) {
  const std::string path =
      (std::filesystem::temp_directory_path() / ("bm_notify_" + std::to_string(::getpid())))
          .string();
  const int fd = bound_socket(path);
  ::setenv("NOTIFY_SOCKET", path.c_str(), 1);
  EXPECT_TRUE(notify_service_manager("READY=1"));
  EXPECT_EQ(receive(fd), "READY=1");
  std::filesystem::remove(path);
  EXPECT_FALSE(notify_service_manager("STOPPING=1"));
}

TEST_F(ReadyNoticeTest, KnowsTheAbstractNameSpace) {
  const std::string name = "bm_notify_" + std::to_string(::getpid());
  const int fd = bound_socket(std::string(1, '\0') + name);
  ::setenv("NOTIFY_SOCKET", ("@" + name).c_str(), 1);
  EXPECT_TRUE(notify_service_manager("READY=1"));
  EXPECT_EQ(receive(fd), "READY=1");
}

}  // namespace
}  // namespace batchmill
