#include "queue/host_watch.h"

namespace batchmill {
namespace {

constexpr int kIdleS = 10;
constexpr int kIntervalS = 5;
constexpr int kQuestions = 4;  // without an answer
constexpr int kUnackedMs = 30'000;  // that what was sent may go unanswered

}  // namespace

void watch_host(zmq::socket_t& socket) {
  socket.set(zmq::sockopt::tcp_keepalive, 1);
  socket.set(zmq::sockopt::tcp_keepalive_idle, kIdleS);
  socket.set(zmq::sockopt::tcp_keepalive_intvl, kIntervalS);
  socket.set(zmq::sockopt::tcp_keepalive_cnt, kQuestions);
  socket.set(zmq::sockopt::tcp_maxrt, kUnackedMs);
}

}  // namespace batchmill
