#include "storage/plan_fronts.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

namespace batchmill {

std::map<PlanKey, PlanFronts::Level>::iterator PlanFronts::level_of(std::string_view key) {
  auto it = levels_.upper_bound(PlanKey(key));
  if (it == levels_.begin()) return levels_.end();
  --it;
  return key < it->second.level.limit ? it : levels_.end();
}

void PlanFronts::written(std::span<const PlanKey> keys, std::uint64_t serial) {
  const std::lock_guard lock(mutex_);
  for (const PlanKey& key : keys) {
    auto it = level_of(key);
    if (it == levels_.end()) {
      std::optional<PlanLevel> level = plan_level_of(key);
      if (!level) continue;
      PlanKey first = level->first;
      it = levels_.emplace(std::move(first), Level{std::move(*level), key, 0}).first;
    }
    Level& level = it->second;
    level.front = std::min(level.front, key);
    level.newest_serial = std::max(level.newest_serial, serial);
    for (Scan* scan : scans_) {
      if (scan->level_ != it->first) continue;
      if (scan->least_written_.empty() || key < scan->least_written_) scan->least_written_ = key;
    }
  }
}

std::vector<PlanFronts::Level> PlanFronts::levels() const {
  const std::lock_guard lock(mutex_);
  std::vector<Level> levels;
  for (const auto& [first, level] : levels_) levels.push_back(level);
  return levels;
}

void PlanFronts::clear() {
  const std::lock_guard lock(mutex_);
  levels_.clear();
}

PlanFronts::Scan::Scan(PlanFronts& fronts, const PlanKey& begin) : fronts_(fronts), begin_(begin) {
  const std::lock_guard lock(fronts_.mutex_);
  const auto it = fronts_.level_of(begin);
  if (it == fronts_.levels_.end() || begin > it->second.front) return;
  at_front_ = true;
  level_ = it->first;
  begin_ = it->second.front;
  place_ = fronts_.scans_.insert(fronts_.scans_.end(), this);
}

PlanFronts::Scan::~Scan() {
  const std::lock_guard lock(fronts_.mutex_);
  if (at_front_) fronts_.scans_.erase(place_);
}

void PlanFronts::Scan::found(std::string_view key) {
  const std::lock_guard lock(fronts_.mutex_);
  if (!at_front_) return;
  const auto it = fronts_.levels_.find(level_);
  if (it == fronts_.levels_.end()) return;
  Level& level = it->second;
  PlanKey front = key.empty() ? level.level.limit : std::min(PlanKey(key), level.level.limit);
  // What was written since the scan began may lie before what it found.
  if (!least_written_.empty()) front = std::min(front, least_written_);
  if (front > level.front) level.front = std::move(front);
}

}  // namespace batchmill
