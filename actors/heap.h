// The process's heaps: few of them, and what is free in them goes back to the system. libzmq and
// uploads take and free a megabyte at a time, beside small things that stay, so without this a
// daemon keeps for good most of what its busiest second took. The supervisor's.
#pragma once

#include <cstdint>

namespace batchmill {

class Heap {
 public:
  // Before threads start: each heap keeps holes of what others freed, since threads pass on what
  // they allocate. With one a thread a daemon holds half as much again as it uses.
  static void keep_few();

  // Every second or so. Costs a walk over what is free, and more only when that is much.
  void give_back();

 private:
  // What is resident beyond what is in use, after the last time or the least since.
  std::int64_t spare_bytes_ = 0;
};

}  // namespace batchmill
