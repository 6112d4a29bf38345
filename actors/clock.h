// Wall and monotonic time, the one place that reads them. Replaceable in tests.
#pragma once

#include <chrono>
#include <cstdint>

namespace batchmill {

class Clock {
 public:
  virtual ~Clock() = default;

  // Microseconds since 1970.
  virtual std::int64_t now_us() const {
    return std::chrono::duration_cast<std::chrono::microseconds>(
               std::chrono::system_clock::now().time_since_epoch())
        .count();
  }
  // Monotonic microseconds from an arbitrary start.
  virtual std::int64_t steady_us() const {
    return std::chrono::duration_cast<std::chrono::microseconds>(
               std::chrono::steady_clock::now().time_since_epoch())
        .count();
  }

  std::int64_t now_s() const { return now_us() / 1'000'000; }
  std::int64_t steady_s() const { return steady_us() / 1'000'000; }
};

}  // namespace batchmill
