#include "queue/socket_events.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <optional>
#include <string>

#include "tests/queue/zmtp_peer.h"

namespace batchmill {
namespace {

class SocketEventsTest : public ::testing::Test {
 protected:
  SocketEventsTest()
      : path_(::testing::TempDir() + "/events_" + std::to_string(::getpid()) + ".sock"),
        listener_(listen_at(path_)),
        dealer_(context_, zmq::socket_type::dealer) {
    dealer_.set(zmq::sockopt::linger, 0);
  }
  ~SocketEventsTest() override {
    ::close(listener_);
    std::filesystem::remove(path_);
  }

  std::string path_;
  int listener_;
  zmq::context_t context_;
  zmq::socket_t dealer_;
};

TEST_F(SocketEventsTest, TellsOfALostConnection) {
  SocketEvents events(context_, dealer_, ZMQ_EVENT_DISCONNECTED);
  dealer_.connect("ipc://" + path_);
  {
    ZmtpPeer server = ZmtpPeer::accept(listener_);
    ASSERT_TRUE(server.shake_hands("ROUTER"));
    EXPECT_FALSE(events.read());
  }
  zmq::pollitem_t item = {events.poll_handle(), 0, ZMQ_POLLIN, 0};
  ASSERT_EQ(zmq_poll(&item, 1, 10'000), 1);
  const auto event = events.read();
  ASSERT_TRUE(event);
  EXPECT_EQ(event->kind, ZMQ_EVENT_DISCONNECTED);
}

// A connection that is lost when nobody reads the events any more must not stop libzmq's thread.
TEST_F(SocketEventsTest, LeavesTheThreadFreeWhenItGoes) {
  {
    std::optional<SocketEvents> events(std::in_place, context_, dealer_, ZMQ_EVENT_DISCONNECTED);
    dealer_.connect("ipc://" + path_);
    ZmtpPeer server = ZmtpPeer::accept(listener_);
    ASSERT_TRUE(server.shake_hands("ROUTER"));
    events.reset();
  }
  // The dealer's second connection comes from the thread that saw the first one end.
  ZmtpPeer again = ZmtpPeer::accept(listener_);
  EXPECT_TRUE(again.shake_hands("ROUTER"));
  zmq::socket_t other(context_, zmq::socket_type::dealer);
  other.set(zmq::sockopt::linger, 0);
  other.connect("ipc://" + path_);
  ZmtpPeer third = ZmtpPeer::accept(listener_);
  EXPECT_TRUE(third.shake_hands("ROUTER"));
}

// The first events of a storm do not keep libzmq's thread from the later connections.
TEST_F(SocketEventsTest, KeepsEveryEventUntilItIsRead) {
  constexpr int kConnections = 3000;  // more than libzmq keeps by default
  zmq::socket_t router(context_, zmq::socket_type::router);
  router.set(zmq::sockopt::linger, 0);
  SocketEvents events(context_, router, ZMQ_EVENT_ACCEPTED);
  const std::string endpoint = "ipc://" + path_ + ".storm";
  router.bind(endpoint);
  for (int i = 0; i < kConnections; ++i) {
    ZmtpPeer peer(endpoint);
    ASSERT_TRUE(peer.shake_hands("DEALER")) << i;
  }
  int accepted = 0;
  while (events.read()) ++accepted;
  EXPECT_EQ(accepted, kConnections);
}

}  // namespace
}  // namespace batchmill
