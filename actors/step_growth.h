// When a device whose steps were made smaller for want of memory may try larger ones again: after
// some steps that succeeded, and after twice as many each time larger ones have failed. So memory
// that comes back is soon used, and a device that stays short of it wastes few steps. One thread.
#pragma once

#include <algorithm>
#include <cstdint>

namespace batchmill {

class StepGrowth {
 public:
  static constexpr std::int32_t kFirstWait = 32;  // steps
  static constexpr std::int32_t kLongestWait = 4096;

  // A step found no memory. Several in a row count as one.
  void failed() {
    if (wait_ == 0 || succeeded_since_) wait_ = std::clamp(2 * wait_, kFirstWait, kLongestWait);
    succeeded_since_ = false;
    is_limited_ = true;
    count_ = 0;
  }
  // True: the next steps should be larger.
  bool succeeded() {
    if (wait_ == 0) return false;
    succeeded_since_ = true;
    if (++count_ < wait_) return false;
    count_ = 0;
    if (!is_limited_) wait_ = 0;
    return is_limited_;
  }
  // Steps are as large as they may ever be. The next failure counts as the first one only if none
  // comes for a while.
  void set_unlimited() { is_limited_ = false; }

 private:
  std::int32_t wait_ = 0;  // steps; 0: nothing has failed lately
  std::int32_t count_ = 0;
  bool is_limited_ = false;
  bool succeeded_since_ = false;
};

}  // namespace batchmill
