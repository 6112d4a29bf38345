// One device's place in one level of the plan: an elevator that sweeps through the sorted entries
// and wraps. What a sweep covers is frozen when it starts; entries that arrive later wait for the
// next one, unless they share a long prefix with the entry before them (which is in the KV cache
// now). So every entry's turn comes. Holds at most kRefillEntries entries whatever the plan's size.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>

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

  PlanCursor(const JobStore* store, PlanLevel level);

  // The next entry for which `admissible` holds; absent after a whole sweep without one.
  std::optional<PlanItem> next(const std::function<bool(const PlanItem&)>& admissible);

  // The plan has new entries: those ahead of the cursor may join the sweep under way.
  void refresh();

  const PlanLevel& level() const { return level_; }

 private:
  void start_sweep();
  bool in_sweep(const PlanItem& item) const;

  const JobStore* store_;
  PlanLevel level_;
  std::deque<PlanItem> buffer_;
  PlanKey position_;  // where the next refill begins
  PlanKey passed_;  // the last entry taken from the buffer in this sweep
  bool at_end_ = true;  // the plan holds nothing behind the buffer
  std::uint64_t frozen_serial_ = 0;
  std::uint32_t num_joiners_ = 0;
  PlanKey last_admitted_;
};

}  // namespace batchmill
