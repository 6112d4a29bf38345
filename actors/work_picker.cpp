#include "actors/work_picker.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>

namespace batchmill {

namespace {

// Lines that cannot run and are found by one call: each is checked anew, which takes a while.
constexpr std::size_t kMaxRefused = 64;

}  // namespace

WorkPicker::WorkPicker(JobStore* store, std::vector<std::string> device_fingerprints, Fit fit)
    : store_(store),
      fit_(std::move(fit)),
      device_fingerprints_(std::move(device_fingerprints)),
      num_in_flight_(device_fingerprints_.size(), 0),
      leading_(device_fingerprints_.size()) {}

void WorkPicker::refresh_levels() {
  // A level that has run dry keeps its cursor: its place in the sweep and its share are still true
  // when entries come again. Their number is bounded by priorities × lanes × models.
  job_may_run_.clear();  // of jobs that have ended, too
  skipped_jobs_.clear();
  double least = 0.0;
  bool any = false;
  for (const auto& [key, level] : levels_) {
    if (level.runs.is_exhausted()) continue;
    least = any ? std::min(least, level.virtual_tokens) : level.virtual_tokens;
    any = true;
  }
  for (PlanLevel& found : store_->plan_levels()) {
    const auto it = levels_.find(found.first);
    if (it == levels_.end()) {
      levels_.emplace(found.first, Level{DeviceRuns(store_, found), least});
    } else {
      // Time spent without work earns no credit.
      Level& level = it->second;
      const bool was_exhausted = level.runs.is_exhausted();
      level.runs.wake(found.newest_serial, entries_freed_);
      if (was_exhausted && !level.runs.is_exhausted()) {
        level.virtual_tokens = std::max(level.virtual_tokens, least);
      }
    }
  }
  levels_stale_ = false;
  entries_freed_ = false;
}

double WorkPicker::weight(const PlanLevel& level) const {
  const double own = std::pow(kWeightPerLevel, level.priority);
  if (!level.short_lane) return own;
  double others = 0.0;
  bool outranks_others = true;
  for (const auto& [key, other] : levels_) {
    const PlanLevel& waiting = other.runs.level();
    if (other.runs.is_exhausted() || waiting.short_lane) continue;
    others += weight(waiting);
    if (waiting.priority >= level.priority) outranks_others = false;
  }
  // The lane helps a job; one of a higher priority has a larger share without it.
  if (outranks_others) return own;
  return others * kShortLaneShare / (1.0 - kShortLaneShare);
}

// `passed`: those that have nothing for the device.
WorkPicker::Level* WorkPicker::next_level(std::uint32_t device,
                                          const std::set<const Level*>& passed) {
  Level* best = nullptr;
  for (auto& [key, level] : levels_) {
    if (level.runs.is_exhausted() || passed.contains(&level) ||
        level.runs.level().fingerprint != device_fingerprints_[device]) {
      continue;
    }
    if (best == nullptr || level.virtual_tokens < best->virtual_tokens) best = &level;
  }
  return best;
}

DeviceRuns::Asker WorkPicker::asker(const WorkRequest& request, std::size_t num_picked) const {
  DeviceRuns::Asker asker;
  asker.device = request.device;
  asker.wants_one = request.max_lines == 1;
  asker.in_flight = {num_in_flight_[request.device] + num_picked};
  for (std::size_t other = 0; other < device_fingerprints_.size(); ++other) {
    if (other != request.device &&
        device_fingerprints_[other] == device_fingerprints_[request.device]) {
      asker.in_flight.push_back(num_in_flight_[other]);
    }
  }
  return asker;
}

bool WorkPicker::job_may_run(const JobId& job) {
  if (const auto it = job_may_run_.find(job); it != job_may_run_.end()) return it->second;
  const std::optional<Job> found = store_->job(job);
  const bool may_run = found && !found->ended() && !found->state.paused;
  job_may_run_.emplace(job, may_run);
  if (!may_run) skipped_jobs_.insert(job);
  return may_run;
}

bool WorkPicker::somebody_waits_alone() const {
  return std::ranges::any_of(alone_, [](const auto& entry) { return !entry.second.empty(); });
}

std::size_t WorkPicker::num_running() const {
  return std::accumulate(num_in_flight_.begin(), num_in_flight_.end(), std::size_t{0});
}

bool WorkPicker::admissible(const PlanItem& item) {
  return !in_flight_.contains(item.line) && job_may_run(item.line.job);
}

// The device runs the first line of a long job.
bool WorkPicker::is_led(std::uint32_t device) const {
  if (num_in_flight_[device] != 1 || !leading_[device]) return false;
  const std::optional<Job> job = store_->job(leading_[device]->job);
  if (!job || job->state.total_lines < kLeadingJobLines) return false;
  return job->counters.completed + job->counters.failed == 0;
}

std::vector<WorkItem> WorkPicker::pick(const WorkRequest& request) {
  const std::uint32_t device = request.device;
  std::vector<WorkItem> picked;
  if (device_fingerprints_[device].empty() || alone_device_ != kNoDevice || is_led(device)) {
    return picked;
  }
  if (levels_stale_) refresh_levels();

  // Alone in the process: other devices run empty, too.
  std::deque<WorkItem>& alone = alone_[device];
  std::uint64_t tokens = 0;
  std::set<const Level*> passed;
  try {
    while (!somebody_waits_alone() && picked.size() < request.max_lines &&
           tokens < request.max_tokens && refused_.size() < kMaxRefused) {
      Level* level = next_level(device, passed);
      if (level == nullptr) break;
      if (!pick_next(level, asker(request, picked.size()), &picked, &tokens)) passed.insert(level);
    }
  } catch (const StorageError&) {
    put_back(picked);
    throw;
  }
  const bool runs_alone = picked.empty() && !alone.empty() && num_running() == 0;
  if (runs_alone) {
    picked.push_back(std::move(alone.front()));
    alone.pop_front();
  }
  begin_attempts(picked);
  if (num_in_flight_[device] == 0) {
    leading_[device] = picked.size() == 1 ? std::optional(picked.front().key) : std::nullopt;
  }
  num_in_flight_[device] += picked.size();
  if (runs_alone) alone_device_ = device;
  return picked;
}

// Takes the level's next entry to where it belongs. False when it has none for the device.
bool WorkPicker::pick_next(Level* level, const DeviceRuns::Asker& who,
                           std::vector<WorkItem>* picked, std::uint64_t* tokens) {
  const std::optional<PlanItem> item = level->runs.next(
      who, [&](const PlanItem& candidate) { return admissible(candidate); }, skipped_jobs_);
  if (!item) return false;
  std::optional<PlanEntry> entry = store_->plan_entry(item->key);
  if (!entry) return true;  // it got its result since the cursor read it
  Fitted fitted =
      fit_ ? fit_(item->key, *std::move(entry)) : Fitted{item->key, std::move(entry), "", ""};
  if (!fitted.entry) return true;
  *tokens += item->num_prompt_tokens;
  level->virtual_tokens +=
      (item->num_prompt_tokens + static_cast<double>(item->num_choices) * item->max_tokens) /
      weight(level->runs.level());

  WorkItem work;
  work.key = item->line;
  work.plan_key = std::move(fitted.key);
  work.model = std::move(fitted.entry->model);
  work.prompts = std::move(fitted.entry->prompts);
  work.request = std::move(fitted.entry->request);
  work.num_wanted_tokens = level->runs.shared_with_rest(who, skipped_jobs_);
  work.attempt = store_->attempts(std::span(&work.key, 1)).front() + 1;
  in_flight_.emplace(work.key, who.device);
  if (!fitted.error_code.empty()) {
    refused_.push_back({std::move(work), fitted.error_code, fitted.error_message});
    ++num_in_flight_[who.device];
  } else if (work.attempt > kMaxAttempts) {
    poisoned_.push_back(std::move(work));
    ++num_in_flight_[who.device];
  } else if (work.attempt == kAttemptAlone) {
    alone_[who.device].push_back(std::move(work));
  } else {
    picked->push_back(std::move(work));
  }
  return true;
}

void WorkPicker::begin_attempts(std::vector<WorkItem>& picked) {
  if (picked.empty()) return;
  std::vector<LineKey> keys;
  keys.reserve(picked.size());
  for (const WorkItem& work : picked) keys.push_back(work.key);
  try {
    const std::vector<std::uint32_t> attempts = store_->begin_attempts(keys);
    for (std::size_t i = 0; i < picked.size(); ++i) picked[i].attempt = attempts[i];
  } catch (const StorageError&) {
    put_back(picked);
    throw;
  }
}

// They were not handed out: the cursors come by again.
void WorkPicker::put_back(const std::vector<WorkItem>& picked) {
  for (const WorkItem& work : picked) in_flight_.erase(work.key);
  levels_stale_ = entries_freed_ = true;
}

std::vector<WorkItem> WorkPicker::take_poisoned() { return std::exchange(poisoned_, {}); }

std::vector<WorkPicker::Refused> WorkPicker::take_refused() { return std::exchange(refused_, {}); }

void WorkPicker::plan_changed() {
  levels_stale_ = true;
  for (auto& [key, level] : levels_) level.runs.plan_changed();
}

void WorkPicker::land(const std::vector<LineKey>& lines) {
  for (const LineKey& line : lines) {
    const auto it = in_flight_.find(line);
    if (it == in_flight_.end()) continue;
    --num_in_flight_[it->second];
    if (it->second == alone_device_) alone_device_ = kNoDevice;
    in_flight_.erase(it);
  }
}

void WorkPicker::done(const std::vector<LineKey>& lines) { land(lines); }

void WorkPicker::returned(const std::vector<LineKey>& lines) {
  land(lines);
  levels_stale_ = entries_freed_ = true;
}

std::vector<LineKey> WorkPicker::device_lost(std::uint32_t device) {
  for (const WorkItem& waiting : alone_[device]) in_flight_.erase(waiting.key);
  alone_.erase(device);
  std::vector<LineKey> lines;
  for (const auto& [line, where] : in_flight_) {
    if (where == device) lines.push_back(line);
  }
  land(lines);
  for (auto& [key, level] : levels_) level.runs.forget_device(device);
  device_fingerprints_[device].clear();
  levels_stale_ = entries_freed_ = true;
  return lines;
}

void WorkPicker::device_replaced(std::uint32_t device, std::string fingerprint) {
  device_fingerprints_[device] = std::move(fingerprint);
  levels_stale_ = entries_freed_ = true;
}

void WorkPicker::job_changed(const JobId& job) {
  job_may_run_.erase(job);
  skipped_jobs_.erase(job);
  const bool may_run = job_may_run(job);
  for (auto& [device, waiting] : alone_) {
    std::erase_if(waiting, [&](const WorkItem& work) {
      if (work.key.job != job || may_run) return false;
      in_flight_.erase(work.key);
      return true;
    });
  }
  levels_stale_ = true;
  entries_freed_ = entries_freed_ || may_run;
}

}  // namespace batchmill
