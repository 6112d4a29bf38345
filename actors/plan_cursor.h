// A place in one level of the plan: an elevator that sweeps through the sorted entries
// and wraps. What a sweep covers is frozen when it starts; entries that arrive later wait for the
// next one, unless they share a long prefix with the entry before them (which is in the KV cache
// now), or the sweep has only just begun. So every entry's turn comes. Holds at most kRefillEntries
// entries whatever the plan's size.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <set>

#include "storage/job_store.h"

namespace batchmill {

class PlanCursor {
 public:
  static constexpr std::size_t kRefillEntries = 256;
  // A later entry joins the sweep when it shares at least this many leading tokens with the entry
  // admitted before it …
  static constexpr std::uint32_t kSharedPrefixTokens = 64;
  // … and at most this many do in one sweep.
  static constexpr std::uint32_t kMaxJoinersPerSweep = 4096;
  // A sweep that has admitted no more than this begins anew when entries arrive: the first line of
  // a job runs before those that belong around it are planned.
  static constexpr std::uint32_t kFirstEntries = 1;

  PlanCursor(const JobStore* store, PlanLevel level);

  // The next entry of no job in `skipped` for which `admissible` holds; absent after a whole sweep
  // without one.
  std::optional<PlanItem> next(const std::function<bool(const PlanItem&)>& admissible,
                               const std::set<JobId>& skipped = {});

  // How many leading tokens the entry that next() gave last shares with those behind it in the
  // sweep, as far as keys tell. -1: none is behind it, and what comes next is not known.
  std::int32_t shared_with_rest(const std::set<JobId>& skipped = {});

  // The plan has new entries: those ahead of the cursor may join the sweep under way.
  void refresh();

  const PlanLevel& level() const { return level_; }
  // Entries with larger numbers came after the sweep under way, or the last one, had begun.
  std::uint64_t frozen_serial() const { return frozen_serial_; }

 private:
  void start_sweep();
  void read_on(const std::set<JobId>& skipped);
  bool in_sweep(const PlanItem& item) const;

  const JobStore* store_;
  PlanLevel level_;
  std::deque<PlanItem> buffer_;
  PlanKey position_;  // where the next refill begins
  PlanKey passed_;  // the last entry taken from the buffer in this sweep
  bool at_end_ = true;  // the plan holds nothing behind the buffer
  std::uint64_t frozen_serial_ = 0;
  std::uint32_t num_joiners_ = 0;
  std::uint32_t num_admitted_ = 0;  // in this sweep
  PlanKey last_admitted_;
};

}  // namespace batchmill
