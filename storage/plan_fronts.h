// Where the first entry of each level of the plan can lie. A cursor deletes what it has passed, so
// that whoever reads a level from its front would step over all that is deleted there and not yet
// compacted away; from here nothing is left out and little is stepped over. Owned by the store;
// any thread may call it. Internal to storage/.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <mutex>
#include <span>
#include <string_view>
#include <vector>

#include "storage/plan.h"

namespace batchmill {

class PlanFronts {
 public:
  struct Level {
    PlanLevel level;
    PlanKey front;  // no entry of the level lies before it
    std::uint64_t newest_serial = 0;  // of its entries, at most
  };

  // Entries have been written, and can be read by now; `serial` is the newest one's.
  void written(std::span<const PlanKey> keys, std::uint64_t serial);
  std::vector<Level> levels() const;  // that have or have had entries; in the order of their keys
  void clear();

  // A read of the plan that begins at `begin`, announced before its snapshot of the plan is taken.
  class Scan {
   public:
    Scan(PlanFronts& fronts, const PlanKey& begin);
    ~Scan();
    Scan(const Scan&) = delete;
    Scan& operator=(const Scan&) = delete;
    // Where to read from: nothing lies between `begin` and this.
    const PlanKey& begin() const { return begin_; }
    // `key` is the first that was found, or the end of what was looked at; empty: the plan's end.
    void found(std::string_view key);

   private:
    friend class PlanFronts;
    PlanFronts& fronts_;
    PlanKey begin_;
    bool at_front_ = false;  // it says where the level begins
    PlanKey level_;  // its first possible key
    PlanKey least_written_;  // meanwhile, in this level; empty: none
    std::list<Scan*>::iterator place_;
  };

 private:
  std::map<PlanKey, Level>::iterator level_of(std::string_view key);

  mutable std::mutex mutex_;
  std::map<PlanKey, Level> levels_;  // by first possible key
  std::list<Scan*> scans_;  // under way, of those at a front
};

}  // namespace batchmill
