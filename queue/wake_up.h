// Ends another thread's poll(): a file descriptor that is readable once set. Any thread may set it;
// the one that polls clears it.
#pragma once

namespace batchmill {

class WakeUp {
 public:
  WakeUp();
  ~WakeUp();
  WakeUp(const WakeUp&) = delete;
  WakeUp& operator=(const WakeUp&) = delete;

  int fd() const { return fd_; }
  void set();
  void clear();

 private:
  int fd_;
};

}  // namespace batchmill
