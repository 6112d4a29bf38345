// Reading and thinning the plan; attempts.
#include "storage/plan.h"

#include <set>
#include <stdexcept>

#include "storage/keys.h"
#include "storage/record_codec.h"
#include "storage/store.h"

namespace batchmill {
namespace {

// How many entries of ended jobs one call steps over for each that it was asked for.
constexpr std::size_t kScanFactor = 16;

LineKey line_of(std::string_view plan_key) {
  if (plan_key.size() < keys::kLineKeyBytes) {
    codec::throw_damaged({"plan", plan_key}, "the key is too short");
  }
  return *keys::parse_line_key(plan_key.substr(plan_key.size() - keys::kLineKeyBytes));
}

}  // namespace

PlanPage Store::read_plan(const PlanRange& range, std::size_t max_entries,
                          const std::set<JobId>& skipped) const {
  PlanPage page;
  page.next = range.begin;
  if (!range.end.empty() && range.begin >= range.end) {
    page.at_end = true;
    return page;
  }
  PlanFronts::Scan scan(plan_fronts(), range.begin);
  if (!range.end.empty() && scan.begin() >= range.end) {
    page.at_end = true;
    return page;
  }
  Database::Cursor cursor(database_, Family::kPlan, scan.begin(), range.end);
  scan.found(cursor.valid() ? cursor.key() : std::string_view(range.end));
  // Neighbours are often of one job.
  std::optional<JobId> last_job;
  bool is_wanted = false;
  for (std::size_t i = 0; i < max_entries * kScanFactor; ++i, cursor.next()) {
    if (!cursor.valid()) {
      page.at_end = true;
      break;
    }
    if (page.items.size() == max_entries) break;
    const LineKey line = line_of(cursor.key());
    if (line.job != last_job) {
      last_job = line.job;
      is_wanted = is_live(line.job) && !skipped.contains(line.job);
    }
    if (is_wanted) {
      page.items.push_back(codec::decode_plan_item({"plan", cursor.key()}, cursor.value()));
    }
    page.next.assign(cursor.key());
    page.next += '\0';
  }
  return page;
}

std::optional<PlanEntry> Store::plan_entry(const PlanKey& key) const {
  const auto value = database_.get(Family::kPlan, key);
  if (!value) return std::nullopt;
  return codec::decode_plan_entry({"plan", key}, *value);
}

std::vector<PlanLevel> Store::plan_levels() const {
  std::vector<PlanLevel> levels;
  for (PlanFronts::Level& known : plan_fronts().levels()) {
    PlanLevel& level = known.level;
    PlanFronts::Scan scan(plan_fronts(), level.first);
    Database::Cursor cursor(database_, Family::kPlan, scan.begin(), level.limit);
    const bool has_entries = cursor.valid();
    scan.found(has_entries ? cursor.key() : std::string_view(level.limit));
    if (!has_entries) continue;
    level.approximate_bytes = database_.approximate_bytes(Family::kPlan, scan.begin(), level.limit);
    level.newest_serial = known.newest_serial;
    levels.push_back(std::move(level));
  }
  return levels;
}

// Known from the first look at the plan on, not from the start: a damaged plan must not be in the
// way of its rebuild.
PlanFronts& Store::plan_fronts() const {
  std::call_once(plan_fronts_known_, [this] {
    std::string at;
    while (true) {
      Database::Cursor cursor(database_, Family::kPlan, at, {});
      if (!cursor.valid()) return;
      const PlanKey key(cursor.key());
      const std::optional<PlanLevel> level = plan_level_of(key);
      if (!level) codec::throw_damaged({"plan", key}, "no plan key");
      plan_fronts_.written(std::span(&key, 1), plan_serial());
      at = level->limit;
    }
  });
  return plan_fronts_;
}

std::uint64_t Store::plan_serial() const {
  const std::shared_lock lock(jobs_mutex_);
  return last_serial_;
}

void Store::replace_plan(std::span<const PlanKey> old_keys, std::span<const PlanEntry> entries) {
  PlanFronts& fronts = plan_fronts();
  const std::lock_guard lock(state_mutex_);
  rocksdb::WriteBatch batch;
  std::set<LineKey> replaced;
  for (const PlanKey& key : old_keys) {
    const LineKey line = line_of(key);
    if (!database_.get(Family::kPlan, key) || !is_live(line.job)) continue;
    erase(batch, Family::kPlan, key);
    replaced.insert(line);
  }
  std::uint64_t serial = last_serial_;
  std::vector<PlanKey> new_keys;
  for (const PlanEntry& entry : entries) {
    if (!replaced.contains(entry.key)) continue;
    new_keys.push_back(make_plan_key(entry));
    put(batch, Family::kPlan, new_keys.back(), codec::encode_plan_entry(entry, ++serial));
  }
  put(batch, Family::kMeta, keys::kSerial, codec::encode_number(serial));
  database_.write(batch, false, "replace_plan");
  fronts.written(new_keys, serial);
  const std::unique_lock jobs_lock(jobs_mutex_);
  last_serial_ = serial;
}

bool Store::drain_plan(std::size_t max_entries) {
  const std::lock_guard lock(state_mutex_);
  if (!drain_wanted_) return false;
  rocksdb::WriteBatch batch;
  std::size_t num_erased = 0;
  bool at_end = false;
  std::string from = drain_from_;
  Database::Cursor cursor(database_, Family::kPlan, from, {});
  for (std::size_t i = 0; i < max_entries * kScanFactor && num_erased < max_entries;
       ++i, cursor.next()) {
    if (!cursor.valid()) {
      at_end = true;
      break;
    }
    if (!is_live(line_of(cursor.key()).job)) {
      erase(batch, Family::kPlan, cursor.key());
      ++num_erased;
    }
    from = std::string(cursor.key()) + '\0';
  }
  const bool is_done = at_end && !drain_again_;
  if (is_done) erase(batch, Family::kMeta, keys::kDrain);
  database_.write(batch, false, "drain_plan");
  plan_deletions_ += num_erased;
  drain_from_ = at_end ? std::string() : std::move(from);
  if (at_end) drain_again_ = false;
  if (is_done) drain_wanted_ = false;
  return drain_wanted_;
}

std::vector<std::uint32_t> Store::attempts(std::span<const LineKey> lines) const {
  std::vector<std::uint32_t> counts;
  counts.reserve(lines.size());
  for (const LineKey& line : lines) {
    const std::string key = keys::line_key(line);
    const auto value = database_.get(Family::kAttempts, key);
    counts.push_back(
        value ? static_cast<std::uint32_t>(codec::decode_number({"attempts", key}, *value)) : 0);
  }
  return counts;
}

std::vector<std::uint32_t> Store::begin_attempts(std::span<const LineKey> lines) {
  const std::lock_guard lock(state_mutex_);
  std::vector<std::uint32_t> counts = attempts(lines);
  rocksdb::WriteBatch batch;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    ++counts[i];
    // Of a job that has ended meanwhile nothing may be left behind.
    if (!is_live(lines[i].job)) continue;
    put(batch, Family::kAttempts, keys::line_key(lines[i]), codec::encode_number(counts[i]));
  }
  database_.write(batch, false, "begin_attempts");
  return counts;
}

void Store::clear_attempts(std::span<const LineKey> lines) {
  const std::lock_guard lock(state_mutex_);
  rocksdb::WriteBatch batch;
  for (const LineKey& line : lines) erase(batch, Family::kAttempts, keys::line_key(line));
  database_.write(batch, false, "clear_attempts");
}

void Store::clear_all_attempts() {
  const std::lock_guard lock(state_mutex_);
  rocksdb::WriteBatch batch;
  for (Database::Cursor cursor(database_, Family::kAttempts, {}, {}); cursor.valid();
       cursor.next()) {
    erase(batch, Family::kAttempts, cursor.key());
  }
  database_.write(batch, false, "clear_all_attempts");
}

}  // namespace batchmill
