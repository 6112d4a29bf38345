// How the devices that run one model divide one level of the plan. Each works through a run of
// neighbouring entries of its own, so that what its prefix cache holds serves the next line; runs
// end where neighbours share least. Near the end of the plan the rest is divided by what each
// device has in flight already, and a device without work takes the second half of another's run.
// Owned by the WorkPicker. Holds at most kRunEntries entries a device, twice.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "actors/plan_cursor.h"

namespace batchmill {

class DeviceRuns {
 public:
  static constexpr std::size_t kRunEntries = 64;

  using Admissible = std::function<bool(const PlanItem&)>;
  // Who asks, and the lines in flight on each device that runs the model, this one's first.
  struct Asker {
    std::uint32_t device = 0;
    bool wants_one = false;  // an idle device: what belongs beside its line is not planned yet
    std::vector<std::size_t> in_flight{0};
  };

  DeviceRuns(const JobStore* store, PlanLevel level) : cursor_(store, std::move(level)) {}

  // The device's next entry. Absent if there is none for it now.
  // `skipped`: jobs none of whose entries are admissible.
  std::optional<PlanItem> next(const Asker& asker, const Admissible& admissible,
                               const std::set<JobId>& skipped);

  // How many leading tokens the entry that next() gave this device last shares with the one that it
  // gets next; -1: not known.
  std::int32_t shared_with_rest(const Asker& asker, const std::set<JobId>& skipped);

  // A whole sweep found nothing that may run, and nobody has a run: until there are newer entries,
  // or entries that the sweep passed over may run now.
  bool is_exhausted() const { return is_dry_ && claimed_.empty(); }
  void wake(std::uint64_t newest_serial, bool entries_freed) {
    if (entries_freed || newest_serial > swept_serial_) is_dry_ = false;
  }
  void plan_changed() { cursor_.refresh(); }

  // What a device has not taken of its run is for the others.
  void forget_device(std::uint32_t device);

  const PlanLevel& level() const { return cursor_.level(); }

 private:
  using Run = std::deque<PlanItem>;

  void fill_rest(std::size_t size, const Admissible& admissible, const std::set<JobId>& skipped);
  bool claim(const Asker& asker, Run* run, const Admissible& admissible,
             const std::set<JobId>& skipped);
  bool steal(const Asker& asker, Run* run);

  PlanCursor cursor_;
  bool is_dry_ = false;
  std::uint64_t swept_serial_ = 0;  // the sweep that found nothing covered entries up to this one
  Run rest_;  // read from the cursor, nobody's yet
  std::map<std::uint32_t, Run> runs_;  // by device
  std::map<std::uint32_t, PlanKey> last_;  // by device
  std::set<LineKey> claimed_;  // those in rest_ and runs_
};

}  // namespace batchmill
