#include "queue/wake_up.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <system_error>

namespace batchmill {

WakeUp::WakeUp() : fd_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (fd_ < 0) throw std::system_error(errno, std::generic_category(), "eventfd");
}

WakeUp::~WakeUp() { ::close(fd_); }

void WakeUp::set() {
  const std::uint64_t one = 1;
  // It can only fail when the counter is full, and then the thread is awake anyway.
  if (::write(fd_, &one, sizeof one) < 0) return;
}

void WakeUp::clear() {
  std::uint64_t count = 0;
  if (::read(fd_, &count, sizeof count) < 0) return;  // nobody set it
}

}  // namespace batchmill
