// Results in, and the ends of jobs.
#include <algorithm>
#include <map>
#include <set>
#include <stdexcept>

#include "storage/keys.h"
#include "storage/record_codec.h"
#include "storage/store.h"

namespace batchmill {
namespace {

// After this many deletions the plan's memory is written to files: a seek steps over what is still
// in memory one by one, what is in files is compacted away.
constexpr std::size_t kPlanDeletionsPerFlush = 8'192;

}  // namespace

bool Store::has_result(const LineKey& key) const {
  return database_.get(Family::kResults, keys::line_key(key)).has_value();
}

Store::Pending Store::pending_of(LiveJob& live) const {
  if (live.next_done == 0) {
    const std::string prefix = keys::job_prefix(live.job.id);
    Database::Cursor last(database_, Family::kDone, prefix, keys::behind(prefix), nullptr, true);
    std::uint64_t number = 0;
    if (last.valid()) {
      const auto key = keys::parse_line_key(last.key());
      if (!key) codec::throw_damaged({"done", last.key()}, "no line key");
      number = key->line;
    }
    live.next_done = number + 1;
  }
  return {live.job.counters, live.next_done, {}, {}};
}

void Store::put_result(rocksdb::WriteBatch& batch, LineResult result, std::int64_t now_s,
                       Pending& job) const {
  const std::string key = keys::line_key(result.key);
  if (result.times.queued_us == 0) {
    if (const auto stored = line(result.key)) result.times.queued_us = stored->queued_us;
  }
  // The clock that never goes back, to the second.
  result.times.finished_us = std::max(result.times.finished_us, now_s * 1'000'000);
  const std::uint64_t sequence = job.next_done++;
  put(batch, Family::kResults, key, codec::encode_result(result, sequence));
  put(batch, Family::kDone, keys::line_key({result.key.job, sequence}),
      codec::encode_number(result.key.line));
  const LedgerRow row = ledger_of(result);
  job.ledger[keys::ledger_key({result.key.job, day_of(result.times.finished_us / 1'000'000),
                               row.model, row.currency, row.price_version})]
      .add(row);
  job.added.add(result);
  job.counters.add(result);
}

void Store::put_sums(rocksdb::WriteBatch& batch, const JobId& id, const Pending& job) const {
  if (job.ledger.empty()) return;
  database_.check(batch.Merge(database_.handle(Family::kJobs),
                              keys::job_key(id, keys::JobPart::kCounters),
                              codec::encode_counters(job.added)));
  for (const auto& [key, row] : job.ledger) {
    database_.check(batch.Merge(database_.handle(Family::kLedger), key, codec::encode_ledger(row)));
  }
}

std::vector<bool> Store::commit_results(std::span<const LineResult> results,
                                        std::span<const PlanKey> plan_keys, std::int64_t now_s) {
  std::vector<bool> written(results.size(), false);
  const std::lock_guard lock(state_mutex_);
  rocksdb::WriteBatch batch;
  const std::int64_t seconds = clock_s(now_s, batch);
  std::map<LiveJobPtr, Pending> pending;
  std::set<LineKey> lines;
  for (std::size_t i = 0; i < results.size(); ++i) {
    const LineResult& result = results[i];
    const bool is_first = lines.insert(result.key).second;
    const LiveJobPtr live = this->live(result.key.job);
    if (live == nullptr || !is_first || has_result(result.key)) continue;
    if (result.key.line == 0 || result.key.line > live->stored_lines) {
      throw std::invalid_argument("a result for line " + std::to_string(result.key.line) +
                                  ", which was never stored");
    }
    auto job = pending.find(live);
    if (job == pending.end()) job = pending.emplace(live, pending_of(*live)).first;
    put_result(batch, result, seconds, job->second);
    erase(batch, Family::kAttempts, keys::line_key(result.key));
    written[i] = true;
  }
  for (const PlanKey& key : plan_keys) {
    if (key.empty()) continue;
    const auto parts = parse_plan_key(key);
    if (!parts || !lines.contains(parts->line)) {
      throw std::invalid_argument("a plan key that belongs to no line of the group");
    }
    erase(batch, Family::kPlan, key);
  }
  for (const auto& [live, job] : pending) put_sums(batch, live->job.id, job);
  database_.write(batch, true, "commit_results");
  for (const auto& [live, job] : pending) {
    live->job.counters = job.counters;
    live->next_done = job.next_done;
  }
  plan_deletions_ += plan_keys.size();
  if (plan_deletions_ >= kPlanDeletionsPerFlush) {
    plan_deletions_ = 0;
    plan_levels();  // looks where the levels begin now, while little has been deleted since
    database_.flush(Family::kPlan, false);
  }
  return written;
}

std::vector<JobId> Store::end_finished_jobs(std::int64_t now_s) {
  std::vector<JobId> ended;
  for (const JobId& id : unfinished_jobs()) {
    const LiveJobPtr live = this->live(id);
    const auto is_finished = [&] {
      const Job& job = live->job;
      return !job.ended() && job.state.upload != UploadState::kOpen &&
             job.state.prepared_through == job.state.total_lines &&
             job.counters.completed + job.counters.failed == job.state.request_lines &&
             (!job.request.strict || job.state.strict_checked);
    };
    if (live == nullptr) continue;
    {
      const std::lock_guard lock(state_mutex_);
      if (!is_finished()) continue;
    }
    measure_prefixes(id);
    const std::lock_guard lock(state_mutex_);
    if (!is_finished()) continue;
    rocksdb::WriteBatch batch;
    JobState state = live->job.state;
    const std::int64_t seconds = clock_s(now_s, batch);
    state.finalizing_at_s = seconds;
    (state.upload == UploadState::kTruncated ? state.failed_at_s : state.completed_at_s) = seconds;
    write_end(live, state, batch);
    ended.push_back(id);
  }
  return ended;
}

void Store::set_paused(const JobId& id, bool paused) {
  const LiveJobPtr live = live_or_throw_unknown(id);
  if (live == nullptr) return;
  const std::lock_guard lock(state_mutex_);
  JobState state = live->job.state;
  if (live->job.ended() || state.paused == paused) return;
  state.paused = paused;
  rocksdb::WriteBatch batch;
  put_progress(batch, id, state);
  database_.write(batch, true, "set_paused");
  live->job.state = std::move(state);
}

bool Store::end_job(const JobId& id, const std::string& code, std::int64_t now_s) {
  const LiveJobPtr live = live_or_throw_unknown(id);
  if (live == nullptr) return false;
  const std::lock_guard upload_lock(live->upload_mutex);
  const std::lock_guard lock(state_mutex_);
  if (live->job.ended()) return false;
  rocksdb::WriteBatch batch;
  JobState state = live->state();
  const std::int64_t seconds = clock_s(now_s, batch);
  state.end_code = code;
  if (code == "batch_cancelled") {
    state.cancelling_at_s = seconds;
    state.cancelled_at_s = seconds;
  } else if (code == "batch_expired") {
    state.expired_at_s = seconds;
  } else {
    state.failed_at_s = seconds;
  }
  write_end(live, state, batch);
  live->upload.is_open = false;
  return true;
}

void Store::write_end(const LiveJobPtr& live, const JobState& ended, rocksdb::WriteBatch& batch) {
  const JobId& id = live->job.id;
  put_progress(batch, id, ended);
  const JobCounters& counters = live->job.counters;
  const bool has_leftovers = counters.completed + counters.failed < ended.request_lines;
  if (has_leftovers) {
    erase_prefix(batch, Family::kAttempts, keys::job_prefix(id));
    put(batch, Family::kMeta, keys::kDrain, codec::encode_number(1));
  }
  // Prefixes that have not been measured never will be, also of a job that has all its answers and
  // ends in its upload.
  if (has_leftovers || ended.prefix_trie_tokens == 0) {
    erase_prefix(batch, Family::kPrompts, keys::job_prefix(id));
  }
  database_.write(batch, true, "end_job");
  live->job.state = ended;
  if (has_leftovers) {
    drain_again_ = drain_again_ || drain_wanted_;
    drain_wanted_ = true;
  }
  const std::unique_lock jobs_lock(jobs_mutex_);
  live_jobs_.erase(id);
}

}  // namespace batchmill
