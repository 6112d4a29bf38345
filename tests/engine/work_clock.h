// Time for measurements: of the wall, or of this thread's work alone where nothing else computes,
// which a busy machine disturbs less.
#pragma once

#include <ctime>

namespace batchmill::testing {

struct WorkClock {
  bool thread_time = false;

  double now_s() const {
    timespec time{};
    ::clock_gettime(thread_time ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &time);
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
  }
};

}  // namespace batchmill::testing
