// Old jobs go, and the space of what has gone.
#include <rocksdb/options.h>

#include <array>
#include <vector>

#include "storage/keys.h"
#include "storage/record_codec.h"
#include "storage/store.h"

namespace batchmill {
namespace {

// Plan entries of ended jobs that are removed between two looks at the jobs.
constexpr std::size_t kDrainEntries = 10'000;

// All that belongs to a job and is keyed by it. The plan is not: it is drained first.
constexpr std::array kFamiliesOfJobs = {Family::kJobs,    Family::kLines,    Family::kIds,
                                        Family::kPrompts, Family::kAttempts, Family::kResults,
                                        Family::kDone,    Family::kLedger};

std::uint64_t table_bytes(const Database& database) {
  std::uint64_t total = 0;
  for (std::size_t i = 0; i < kNumFamilies; ++i) {
    std::uint64_t bytes = 0;
    database.db().GetIntProperty(database.handle(static_cast<Family>(i)),
                                 rocksdb::DB::Properties::kTotalSstFilesSize, &bytes);
    total += bytes;
  }
  return total;
}

}  // namespace

StoreCare::PruneReport Store::prune(std::int64_t ended_before_s, const std::atomic<bool>& stop) {
  const auto is_old = [&](const Job& candidate) {
    return candidate.ended() && candidate.state.end_time_s() < ended_before_s;
  };
  PruneReport report;
  // The oldest first, so that what a stop leaves is the newer part.
  for (const JobId& id : job_ids()) {
    if (stop) break;
    const std::optional<Job> found = job(id);
    if (!found || !is_old(*found)) continue;
    while (!prune_job(id, report) && !stop) drain_plan(kDrainEntries);
  }
  return report;
}

// False while the plan may still hold entries of the job.
bool Store::prune_job(const JobId& id, PruneReport& report) {
  const std::lock_guard lock(state_mutex_);
  if (drain_wanted_) return false;
  const std::optional<Job> job = read_job(id, nullptr);
  if (!job || !job->ended()) return true;
  const std::string prefix = keys::job_prefix(id);
  rocksdb::WriteBatch batch;
  for (Family family : kFamiliesOfJobs) erase_prefix(batch, family, prefix);
  const std::string& key = job->request.idempotency_key;
  if (!key.empty()) erase(batch, Family::kMeta, keys::idempotency_key(job->request.owner, key));
  database_.write(batch, true, "prune");
  report.jobs += 1;
  report.lines += job->state.request_lines;
  report.results += job->counters.completed + job->counters.failed;
  return true;
}

StoreCare::CompactReport Store::compact(std::atomic<bool>& stop) {
  if (database_.read_only()) {
    throw StorageError(StorageError::Kind::kIo, "the store is open for reading only");
  }
  CompactReport report;
  database_.flush_all();
  report.bytes_before = table_bytes(database_);
  rocksdb::CompactRangeOptions options;
  options.exclusive_manual_compaction = false;
  options.bottommost_level_compaction = rocksdb::BottommostLevelCompaction::kForceOptimized;
  options.canceled = &stop;
  for (std::size_t i = 0; i < kNumFamilies; ++i) {
    const rocksdb::Status status = database_.db().CompactRange(
        options, database_.handle(static_cast<Family>(i)), nullptr, nullptr);
    if (status.IsIncomplete() || stop) {
      throw StorageError(StorageError::Kind::kIo, "compaction was stopped; nothing is lost");
    }
    database_.check(status);
  }
  report.bytes_after = table_bytes(database_);
  return report;
}

}  // namespace batchmill
