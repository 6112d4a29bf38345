#include "queue/epoll_guard.h"

#include <dlfcn.h>
#include <sys/epoll.h>
#include <zmq.h>

#include <cerrno>
#include <cstdint>
#include <mutex>
#include <unordered_map>

namespace batchmill {
namespace {

constexpr std::uint32_t kHungUp = EPOLLHUP | EPOLLERR;

// A file descriptor that libzmq has given to an epoll. The kernel knows it by its number.
struct Registration {
  epoll_data_t data;
  std::uint32_t events = 0;  // as libzmq wants them
  bool was_read = false;  // not so of a connection that is being made, whose failure is a hang-up
  bool hung_up =
      false;  // and taken out of the kernel's set, which would tell of it again and again
};

// Each of libzmq's threads has an epoll, which only it changes: the lock is for those of others.
class Guard {
 public:
  int control(int epoll, int operation, int fd, epoll_event* event, const void* caller) {
    const std::lock_guard lock(mutex_);
    const auto known = registrations_.find(epoll);
    if (operation == EPOLL_CTL_ADD) {
      if (!is_libzmq(caller)) {
        if (known != registrations_.end())
          registrations_.erase(known);  // the number of a closed one
        return control_(epoll, operation, fd, event);
      }
      Registration& added = registrations_[epoll][fd];
      added = {event->data, 0, false, false};
      return change(epoll, EPOLL_CTL_ADD, fd, added, event->events);
    }
    if (known == registrations_.end() || !known->second.contains(fd)) {
      return control_(epoll, operation, fd, event);
    }
    Registration& registration = known->second.at(fd);
    if (operation == EPOLL_CTL_MOD) {
      registration.data = event->data;
      if (!registration.hung_up) {
        return change(epoll, EPOLL_CTL_MOD, fd, registration, event->events);
      }
      registration.events = event->events;
      if ((event->events & EPOLLIN) == 0) return 0;
      registration.hung_up = false;
      return change(epoll, EPOLL_CTL_ADD, fd, registration, event->events);
    }
    const bool in_kernel = !registration.hung_up;
    known->second.erase(fd);
    if (known->second.empty()) registrations_.erase(known);
    return in_kernel ? control_(epoll, EPOLL_CTL_DEL, fd, event) : 0;
  }

  int wait(int epoll, epoll_event* events, int max_events, int timeout_ms) {
    const int count = wait_(epoll, events, max_events, timeout_ms);
    const int error = errno;
    const std::lock_guard lock(mutex_);
    const auto known = registrations_.find(epoll);
    if (known == registrations_.end() || count <= 0) {
      errno = error;
      return count;
    }
    int kept = 0;
    for (int i = 0; i < count; ++i) {
      const int fd = events[i].data.fd;
      const auto it = known->second.find(fd);
      if (it == known->second.end()) continue;
      Registration& registration = it->second;
      std::uint32_t seen = events[i].events;
      if ((seen & kHungUp) != 0 && registration.was_read) {
        seen &= ~kHungUp;
        if ((registration.events & EPOLLIN) != 0) {
          seen |= EPOLLIN;  // once: libzmq reads for either, and may stop at the first
        } else {
          registration.hung_up = control_(epoll, EPOLL_CTL_DEL, fd, nullptr) == 0;
          if (seen == 0) continue;
        }
      }
      events[kept].events = seen;
      events[kept++].data = registration.data;
    }
    return kept;
  }

 private:
  using Control = int (*)(int, int, int, epoll_event*);
  using Wait = int (*)(int, epoll_event*, int, int);

  static bool is_libzmq(const void* caller) {
    Dl_info from = {}, libzmq = {};
    return ::dladdr(caller, &from) != 0 &&
           ::dladdr(reinterpret_cast<const void*>(&zmq_ctx_new), &libzmq) != 0 &&
           from.dli_fbase == libzmq.dli_fbase;
  }

  int change(int epoll, int operation, int fd, Registration& registration, std::uint32_t events) {
    registration.events = events;
    registration.was_read |= (events & EPOLLIN) != 0;
    epoll_event event = {};
    event.events = events;
    event.data.fd = fd;
    return control_(epoll, operation, fd, &event);
  }

  const Control control_ = reinterpret_cast<Control>(::dlsym(RTLD_NEXT, "epoll_ctl"));
  const Wait wait_ = reinterpret_cast<Wait>(::dlsym(RTLD_NEXT, "epoll_wait"));
  std::mutex mutex_;
  std::unordered_map<int, std::unordered_map<int, Registration>> registrations_;  // by epoll, fd
};

// Never destroyed: threads may wait until the process ends.
Guard& guard() {
  static Guard* const guard = new Guard;
  return *guard;
}

}  // namespace

void guard_epoll() { guard(); }

}  // namespace batchmill

extern "C" {

[[gnu::visibility("default")]] int epoll_ctl(int epoll, int operation, int fd,
                                             epoll_event* event) noexcept {
  return batchmill::guard().control(epoll, operation, fd, event, __builtin_return_address(0));
}

[[gnu::visibility("default")]] int epoll_wait(int epoll, epoll_event* events, int max_events,
                                              int timeout_ms) {
  return batchmill::guard().wait(epoll, events, max_events, timeout_ms);
}

}  // extern "C"
