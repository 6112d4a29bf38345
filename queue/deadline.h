// A span of time after which waiting ends, as a file descriptor that poll() understands. One owner,
// one thread.
#pragma once

#include <chrono>

namespace batchmill {

class Deadline {
 public:
  explicit Deadline(std::chrono::milliseconds span);  // starts now; at least 1 ms
  ~Deadline();
  Deadline(const Deadline&) = delete;
  Deadline& operator=(const Deadline&) = delete;

  void restart();
  int fd() const { return fd_; }  // readable once the span has passed
  std::chrono::milliseconds span() const { return span_; }

 private:
  std::chrono::milliseconds span_;
  int fd_;
};

}  // namespace batchmill
