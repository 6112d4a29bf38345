// Lines whose attempt is counted and not over: what a dispatcher has handed out, kept for the one
// that takes its place. Owned by the supervisor; thread-safe.
#pragma once

#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include "storage/job_store.h"

namespace batchmill {

class OpenAttempts {
 public:
  void add(const LineKey& line) {
    const std::lock_guard lock(mutex_);
    lines_.insert(line);
  }
  void remove(const std::vector<LineKey>& lines) {
    const std::lock_guard lock(mutex_);
    for (const LineKey& line : lines) lines_.erase(line);
  }
  std::vector<LineKey> take_all() {
    const std::lock_guard lock(mutex_);
    const std::set<LineKey> taken = std::exchange(lines_, {});
    return {taken.begin(), taken.end()};
  }

 private:
  std::mutex mutex_;
  std::set<LineKey> lines_;
};

// Lines that came back in good order, or whose dispatcher or writer died, show no sign of poison.
// Where that cannot be written they count as tried, which is logged.
void forgive_attempts(JobStore& store, const std::vector<LineKey>& lines);

}  // namespace batchmill
