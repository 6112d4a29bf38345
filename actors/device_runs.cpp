#include "actors/device_runs.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <utility>

namespace batchmill {
namespace {

// The place in [first, last] at which a run is best cut in two: where neighbours share least, and
// of several such places the last one.
std::size_t best_cut(const std::deque<PlanItem>& run, std::size_t first, std::size_t last) {
  std::size_t best = last;
  std::uint32_t least = UINT32_MAX;
  for (std::size_t cut = first; cut <= last && cut < run.size(); ++cut) {
    if (cut == 0) continue;
    const std::uint32_t shared = common_prefix_tokens(run[cut - 1].key, run[cut].key);
    if (shared > least) continue;
    least = shared;
    best = cut;
  }
  return best;
}

// Moves run[begin, end) behind `target`.
void move_range(std::deque<PlanItem>* run, std::size_t begin, std::size_t end,
                std::deque<PlanItem>* target) {
  const auto first = run->begin() + static_cast<std::ptrdiff_t>(begin);
  const auto last = run->begin() + static_cast<std::ptrdiff_t>(end);
  target->insert(target->end(), std::make_move_iterator(first), std::make_move_iterator(last));
  run->erase(first, last);
}

}  // namespace

std::optional<PlanItem> DeviceRuns::next(const Asker& asker, const Admissible& admissible,
                                         const std::set<JobId>& skipped) {
  Run& run = runs_[asker.device];
  while (true) {
    if (run.empty() && !claim(asker, &run, admissible, skipped) && !steal(asker, &run)) {
      return std::nullopt;
    }
    PlanItem item = std::move(run.front());
    run.pop_front();
    claimed_.erase(item.line);
    if (!admissible(item)) continue;  // its job has been paused or has ended since
    last_[asker.device] = item.key;
    return item;
  }
}

// Reads on until the rest has `size` entries.
void DeviceRuns::fill_rest(std::size_t size, const Admissible& admissible,
                           const std::set<JobId>& skipped) {
  const auto is_free = [&](const PlanItem& item) {
    return !claimed_.contains(item.line) && admissible(item);
  };
  while (rest_.size() < size && !is_dry_) {
    std::optional<PlanItem> item = cursor_.next(is_free, skipped);
    if (!item) {
      is_dry_ = true;
      swept_serial_ = cursor_.frozen_serial();
      return;
    }
    claimed_.insert(item->line);
    rest_.push_back(*std::move(item));
  }
}

bool DeviceRuns::claim(const Asker& asker, Run* run, const Admissible& admissible,
                       const std::set<JobId>& skipped) {
  const std::size_t devices = asker.in_flight.size();
  if (devices == 1 || asker.wants_one) {
    fill_rest(1, admissible, skipped);
    if (rest_.empty()) return false;
    move_range(&rest_, 0, 1, run);
    return true;
  }
  const std::size_t whole = kRunEntries * devices;
  fill_rest(whole, admissible, skipped);
  if (rest_.empty()) return false;
  if (rest_.size() == whole) {
    move_range(&rest_, 0, best_cut(rest_, kRunEntries / 2, kRunEntries), run);
    return true;
  }
  // The end is in sight: all devices should have as much.
  const std::size_t running =
      std::accumulate(asker.in_flight.begin(), asker.in_flight.end(), std::size_t{0});
  const std::size_t share = (running + rest_.size() + devices - 1) / devices;
  const std::size_t own = asker.in_flight.front();
  if (share <= own) return false;
  const std::size_t most = std::min({share - own, kRunEntries, rest_.size()});
  move_range(&rest_, 0, most < rest_.size() ? best_cut(rest_, (most + 1) / 2, most) : most, run);
  return true;
}

bool DeviceRuns::steal(const Asker& asker, Run* run) {
  const auto longest =
      std::ranges::max_element(runs_, {}, [](const auto& entry) { return entry.second.size(); });
  Run& victim = longest->second;
  if (victim.size() <= asker.in_flight.front()) return false;
  const std::size_t size = victim.size();
  const std::size_t cut =
      size == 1 ? 0 : best_cut(victim, std::max<std::size_t>(1, size / 4), (size + 1) / 2);
  move_range(&victim, cut, size, run);
  return true;
}

std::int32_t DeviceRuns::shared_with_rest(const Asker& asker, const std::set<JobId>& skipped) {
  const Run& run = runs_[asker.device];
  if (!run.empty()) {
    return static_cast<std::int32_t>(common_prefix_tokens(last_[asker.device], run.front().key));
  }
  return asker.in_flight.size() == 1 && rest_.empty() ? cursor_.shared_with_rest(skipped) : -1;
}

void DeviceRuns::forget_device(std::uint32_t device) {
  const auto run = runs_.find(device);
  if (run == runs_.end()) return;
  run->second.insert(run->second.end(), std::make_move_iterator(rest_.begin()),
                     std::make_move_iterator(rest_.end()));
  rest_ = std::move(run->second);
  runs_.erase(run);
}

}  // namespace batchmill
