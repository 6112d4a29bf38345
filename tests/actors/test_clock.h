// The machine's clocks, moved forward where a test has no time to wait. Thread-safe.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

#include "actors/clock.h"

namespace batchmill::testing {

class TestClock : public Clock {
 public:
  std::int64_t now_us() const override { return Clock::now_us() + wall_us_; }
  std::int64_t steady_us() const override { return Clock::steady_us() + steady_us_; }

  // Time passes.
  void pass(std::chrono::microseconds time) {
    set_wall(time);
    steady_us_ += time.count();
  }
  // Somebody sets the wall clock forward or back; or the machine was off for so long.
  void set_wall(std::chrono::microseconds by) { wall_us_ += by.count(); }

 private:
  std::atomic<std::int64_t> wall_us_{0};
  std::atomic<std::int64_t> steady_us_{0};
};

}  // namespace batchmill::testing
