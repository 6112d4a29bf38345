#include "queue/deadline.h"

#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

namespace batchmill {

Deadline::Deadline(std::chrono::milliseconds span)
    : span_(std::max(span, std::chrono::milliseconds(1))),
      fd_(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK)) {
  if (fd_ < 0) throw std::system_error(errno, std::generic_category(), "timerfd");
  restart();
}

Deadline::~Deadline() { ::close(fd_); }

void Deadline::restart() {
  itimerspec timer = {};
  timer.it_value.tv_sec = span_.count() / 1000;
  timer.it_value.tv_nsec = span_.count() % 1000 * 1'000'000;
  if (::timerfd_settime(fd_, 0, &timer, nullptr) != 0) {
    throw std::system_error(errno, std::generic_category(), "timerfd");
  }
}

}  // namespace batchmill
