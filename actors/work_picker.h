// Decides which pending line a device gets next: cursors over the plan, fair shares between
// priority levels, what is in flight, and lines that must run alone. Reads the store, sends
// nothing. Owned by the dispatcher actor; its memory depends on what is in flight, never on the
// plan's size.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "actors/device_runs.h"
#include "actors/messages.h"
#include "storage/job_store.h"

namespace batchmill {

class WorkPicker {
 public:
  // The attempt in which a line runs alone, because the process died in those before it …
  static constexpr std::uint32_t kAttemptAlone = 3;
  // … and the last one: if that ends the process too, the line has failed.
  static constexpr std::uint32_t kMaxAttempts = 3;
  // Weight of one priority level against the level below it.
  static constexpr double kWeightPerLevel = 2.0;
  // Share of a device that the short lane may take while long jobs wait.
  static constexpr double kShortLaneShare = 0.25;
  // The first line of a job of at least so many runs on its device without others until it has its
  // result, which so comes as soon as it can. Of a job of that length it costs about a hundredth at
  // most, since a device serves tens of lines in the time of one.
  static constexpr std::uint64_t kLeadingJobLines = 1000;

  // What a line runs as.
  struct Fitted {
    PlanKey key;
    std::optional<PlanEntry> entry;  // absent: it is not in this place of the plan any more
    std::string error_code;  // or it cannot run, and why
    std::string error_message;
  };
  // Makes an entry fit the devices. Throws StorageError.
  using Fit = std::function<Fitted(const PlanKey&, PlanEntry)>;
  // A line that cannot run.
  struct Refused {
    WorkItem item;
    std::string error_code;
    std::string error_message;
  };

  // `device_fingerprints`: [devices] the model that each device runs; empty: the device is lost.
  // Without `fit` every entry fits.
  WorkPicker(JobStore* store, std::vector<std::string> device_fingerprints, Fit fit = nullptr);

  // Lines for the device: at most request.max_lines, and no further one once request.max_tokens
  // prompt tokens are reached. Their attempts are counted. Empty when nothing may run now. When
  // the store cannot be written it throws StorageError, and nothing is in flight for it.
  std::vector<WorkItem> pick(const WorkRequest& request);

  // Lines that pick() found to have used up their attempts, to be failed; taken once.
  std::vector<WorkItem> take_poisoned();
  // The same of those that cannot run.
  std::vector<Refused> take_refused();

  void plan_changed();  // new entries
  void done(const std::vector<LineKey>& lines);  // have results
  void returned(const std::vector<LineKey>& lines);  // came back without
  void job_changed(const JobId& job);  // paused, resumed, ended
  // The device gets no more lines. Returns those that it had, which may run again elsewhere.
  std::vector<LineKey> device_lost(std::uint32_t device);
  // Another device has the place of one that was lost.
  void device_replaced(std::uint32_t device, std::string fingerprint);

  std::size_t num_in_flight() const { return in_flight_.size(); }
  std::size_t num_in_flight(std::uint32_t device) const { return num_in_flight_[device]; }

 private:
  static constexpr std::uint32_t kNoDevice = UINT32_MAX;

  struct Level {
    DeviceRuns runs;
    double virtual_tokens = 0.0;  // tokens handed out ÷ weight
  };

  void refresh_levels();
  Level* next_level(std::uint32_t device, const std::set<const Level*>& passed);
  DeviceRuns::Asker asker(const WorkRequest& request, std::size_t num_picked) const;
  bool somebody_waits_alone() const;
  std::size_t num_running() const;  // on all devices
  double weight(const PlanLevel& level) const;
  bool admissible(const PlanItem& item);
  bool job_may_run(const JobId& job);
  bool is_led(std::uint32_t device) const;
  bool pick_next(Level* level, const DeviceRuns::Asker& who, std::vector<WorkItem>* picked,
                 std::uint64_t* tokens);
  void begin_attempts(std::vector<WorkItem>& picked);
  void put_back(const std::vector<WorkItem>& picked);
  void land(const std::vector<LineKey>& lines);

  JobStore* store_;
  const Fit fit_;
  std::vector<std::string> device_fingerprints_;
  std::map<PlanKey, Level> levels_;  // by first possible key
  bool levels_stale_ = true;
  bool entries_freed_ = false;  // what a sweep passed over may run now
  std::map<LineKey, std::uint32_t> in_flight_;  // line → device
  std::vector<std::size_t> num_in_flight_;  // [devices]
  std::vector<std::optional<LineKey>> leading_;  // [devices] a line that came to an idle device
  std::uint32_t alone_device_ = kNoDevice;  // where a line runs alone, if one does
  std::map<std::uint32_t, std::deque<WorkItem>> alone_;  // device → lines waiting to run alone
  std::map<JobId, bool> job_may_run_;  // cache, cleared at every change
  std::set<JobId> skipped_jobs_;  // that may not run
  std::vector<WorkItem> poisoned_;
  std::vector<Refused> refused_;
};

}  // namespace batchmill
