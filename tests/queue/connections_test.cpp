#include "queue/connections.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>

namespace batchmill::testing {
namespace {

// Two connected TCP sockets.
struct Pair {
  int client = -1;
  int server = -1;

  Pair() {
    const int listener = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    auto* const any = reinterpret_cast<sockaddr*>(&address);
    EXPECT_EQ(::bind(listener, any, size), 0);
    EXPECT_EQ(::listen(listener, 1), 0);
    EXPECT_EQ(::getsockname(listener, any, &size), 0);
    client = ::socket(AF_INET, SOCK_STREAM, 0);
    EXPECT_EQ(::connect(client, any, size), 0);
    server = ::accept(listener, nullptr, nullptr);
    EXPECT_GE(server, 0);
    ::close(listener);
  }
  ~Pair() {
    ::close(client);
    ::close(server);
  }
  Pair(const Pair&) = delete;

  void send(std::size_t bytes) const {
    const std::string text(bytes, 'x');
    ASSERT_EQ(::send(client, text.data(), bytes, 0), static_cast<ssize_t>(bytes));
    std::string received(bytes, '\0');
    ASSERT_EQ(::recv(server, received.data(), bytes, MSG_WAITALL), static_cast<ssize_t>(bytes));
  }
};

TEST(ConnectionsTest, EndsWhoIsTooFarAheadOfItsLastMessage) {
  const Pair pair;
  Connections connections(10, 1000);
  connections.opened(pair.server);
  pair.send(1000);
  EXPECT_EQ(connections.end_unfinished(0), 0u);
  pair.send(1);
  EXPECT_EQ(connections.end_unfinished(1), 0u);
  connections.finished(pair.server);
  EXPECT_EQ(connections.end_unfinished(0), 0u);
  pair.send(1001);
  EXPECT_EQ(connections.end_unfinished(0), 1u);
  EXPECT_EQ(connections.end_unfinished(0), 0u);  // once
}

TEST(ConnectionsTest, LeavesANewerConnectionOfTheSameNumberAlone) {
  const Pair old, newer;
  Connections connections(10, 1000);
  connections.opened(old.server);
  old.send(900);
  connections.finished(old.server);
  ASSERT_EQ(::dup2(newer.server, old.server), old.server);  // before its event was read
  newer.send(10);
  EXPECT_EQ(connections.end_unfinished(0), 0u);
}

}  // namespace
}  // namespace batchmill::testing
