// JobStore over RocksDB. Internal to storage/; one source per group of operations.
//
// Locks, taken in this order: a job's upload_mutex (its upload record, and all it takes to write
// lines: an upload never waits for another one or for results), state_mutex_ (everything else that
// is written; held across the write, which puts results, cancellation and expiry in one order),
// jobs_mutex_ (the table of unfinished jobs; held for moments). Reads take at most jobs_mutex_, and
// see the database. Of what is not durable yet that is only lines.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <vector>

#include "storage/database.h"
#include "storage/job_store.h"
#include "storage/plan_fronts.h"

namespace batchmill {

class Store : public JobStore {
 public:
  static constexpr std::uint64_t kSchemaVersion = 1;

  Store(const std::string& directory, const StorageOptions& options, Mode mode, rocksdb::Env* env,
        Database::DamagedLog damaged_log = Database::DamagedLog::kRefuse);

  Opened open_job(const JobRequest& request, std::int64_t now_ms) override;
  std::optional<Job> job(const JobId& id) const override;
  std::optional<Job> job_of_key(const std::string& idempotency_key,
                                const std::string& owner) const override;
  std::vector<Job> list(const std::optional<JobId>& after, std::size_t limit,
                        const std::string& status,
                        const std::optional<std::string>& owner) const override;
  std::vector<JobId> unfinished_jobs() const override;

  bool write_lines(const JobId& id, std::span<const StoredLine> lines,
                   std::uint64_t upload_offset_bytes, std::int64_t now_us) override;
  void sync() override { database_.sync(); }
  std::string why_lost() const override { return database_.why_lost(); }
  bool seal(const JobId& id, const std::string& content_hash, std::int64_t now_s) override;
  void truncate(const JobId& id, const std::string& code, const std::string& message,
                std::int64_t now_s) override;

  std::vector<StoredLine> read_lines(const JobId& id, std::uint64_t first_line,
                                     std::size_t max_lines, std::size_t max_bytes) const override;
  std::vector<std::uint64_t> find_owners(const JobId& id,
                                         std::span<const std::string> custom_ids) const override;
  void claim_ids(const JobId& id,
                 std::span<const std::pair<std::string, std::uint64_t>> custom_ids) override;
  bool commit_prepared(const JobId& id, Prepared prepared, std::int64_t now_s) override;
  void set_strict_checked(const JobId& id) override;
  void fail_job(const JobId& id, const std::string& code, std::vector<JobState::JobError> errors,
                std::int64_t now_s) override;
  void measure_prefixes(const JobId& id) override;

  PlanPage read_plan(const PlanRange& range, std::size_t max_entries,
                     const std::set<JobId>& skipped) const override;
  std::optional<PlanEntry> plan_entry(const PlanKey& key) const override;
  std::vector<PlanLevel> plan_levels() const override;
  std::uint64_t plan_serial() const override;
  void replace_plan(std::span<const PlanKey> old_keys, std::span<const PlanEntry> entries) override;
  std::vector<std::uint32_t> begin_attempts(std::span<const LineKey> lines) override;
  std::vector<std::uint32_t> attempts(std::span<const LineKey> lines) const override;
  void clear_attempts(std::span<const LineKey> lines) override;
  void clear_all_attempts() override;

  std::vector<bool> commit_results(std::span<const LineResult> results,
                                   std::span<const PlanKey> plan_keys, std::int64_t now_s) override;
  std::vector<JobId> end_finished_jobs(std::int64_t now_s) override;
  void set_paused(const JobId& id, bool paused) override;
  bool end_job(const JobId& id, const std::string& code, std::int64_t now_s) override;
  bool drain_plan(std::size_t max_entries) override;

  ResultPage read_results(const JobId& id, ResultOrder order, std::uint64_t from,
                          std::size_t max_results, std::size_t max_bytes) const override;
  std::optional<LineResult> result(const LineKey& key) const override;
  std::uint64_t find_line(const JobId& id, const std::string& custom_id) const override;
  std::optional<StoredLine> line(const LineKey& key) const override;

  void read_ledger(const std::optional<JobId>& id, LedgerBy by, const LedgerSink& sink,
                   const std::optional<std::string>& owner) const override;
  void read_line_ledger(const JobId& id, std::uint64_t first_line,
                        const LedgerSink& sink) const override;

  void flush() override;
  void rebuild() override;
  CheckReport check() const override;
  BackupReport backup(const std::string& directory, const std::atomic<bool>& stop) override;
  CompactReport compact(std::atomic<bool>& stop) override;
  PruneReport prune(std::int64_t ended_before_s, const std::atomic<bool>& stop) override;

 private:
  // An unfinished job. `job` is what the database holds, under state_mutex_; while the upload is
  // open its lines and offset are in `upload`.
  struct LiveJob {
    explicit LiveJob(Job job);
    // The state as it is when both locks are held.
    JobState state() const;

    std::mutex upload_mutex;
    // Under upload_mutex. Ends of the job and of the upload take both locks.
    struct {
      bool is_open = false;  // takes lines: neither has ended
      std::uint64_t total_lines = 0;
      std::uint64_t request_lines = 0;
      std::uint64_t offset_bytes = 0;
    } upload;
    std::atomic<std::uint64_t> stored_lines;  // upload.total_lines for everyone else
    Job job;  // counters: without what ended with the job
    std::uint64_t next_done = 0;  // next number of the done order; 0: not read yet
  };
  using LiveJobPtr = std::shared_ptr<LiveJob>;

  void check_schema();
  void load_jobs();
  PlanFronts& plan_fronts() const;
  LiveJobPtr live(const JobId& id) const;  // null: ended or unknown
  LiveJobPtr live_or_throw_unknown(const JobId& id) const;
  bool is_live(const JobId& id) const { return live(id) != nullptr; }
  std::vector<JobId> job_ids() const;  // of all jobs, the oldest first
  // As the database has it; counters without what ended with the job.
  std::optional<Job> read_job(const JobId& id, const rocksdb::Snapshot* snapshot) const;

  // The clock that never goes back; the batch keeps it.
  std::int64_t clock_us(std::int64_t now_us, rocksdb::WriteBatch& batch);
  std::int64_t clock_s(std::int64_t now_s, rocksdb::WriteBatch& batch);
  void put(rocksdb::WriteBatch& batch, Family family, std::string_view key,
           std::string_view value) const;
  void erase(rocksdb::WriteBatch& batch, Family family, std::string_view key) const;
  void erase_prefix(rocksdb::WriteBatch& batch, Family family, std::string_view prefix) const;
  void put_line(rocksdb::WriteBatch& batch, const JobId& id, const StoredLine& line,
                std::int64_t queued_us) const;
  void put_progress(rocksdb::WriteBatch& batch, const JobId& id, const JobState& state) const;

  // A job's part of a batch in the making; publish it only when the batch is written.
  struct Pending {
    JobCounters counters;  // as they will be
    std::uint64_t next_done = 0;  // as in LiveJob
    JobCounters added;
    std::map<std::string, LedgerRow> ledger;  // by key: what the batch adds
  };
  // Of what a batch adds to the job. Reads where its done order ends when the first result of a
  // start comes, not before: a damaged table of it must not be in the way of its rebuild.
  Pending pending_of(LiveJob& live) const;
  // Puts a result with its place in the done order; its sums wait in `job` for put_sums.
  void put_result(rocksdb::WriteBatch& batch, LineResult result, std::int64_t now_s,
                  Pending& job) const;
  void put_sums(rocksdb::WriteBatch& batch, const JobId& id, const Pending& job) const;
  bool has_result(const LineKey& key) const;
  // Ends a job for good: the record, the leftovers, the table of unfinished jobs.
  void write_end(const LiveJobPtr& live, const JobState& ended, rocksdb::WriteBatch& batch);
  std::uint64_t count_trie_tokens(const JobId& id) const;
  void read_job_ledger(const Job& job, const LedgerSink& sink) const;
  LineResult ended_line(const Job& job, StoredLine line) const;
  void rebuild_job(const Job& job);
  bool prune_job(const JobId& id, PruneReport& report);

  mutable Database database_;
  mutable PlanFronts plan_fronts_;  // by plan_fronts()
  mutable std::once_flag plan_fronts_known_;
  std::mutex state_mutex_;
  std::atomic<std::int64_t> last_us_ = 0;
  std::uint64_t last_serial_ = 0;  // written under state_mutex_ and jobs_mutex_
  std::string drain_from_;
  std::size_t plan_deletions_ = 0;  // since the plan was last written to files
  bool drain_wanted_ = false;
  bool drain_again_ = false;  // a job ended since the pass over the plan began

  mutable std::shared_mutex jobs_mutex_;
  std::map<JobId, LiveJobPtr> live_jobs_;
};

// For tests: a store over another file system.
std::unique_ptr<JobStore> open_store(const std::string& directory, const StorageOptions& options,
                                     JobStore::Mode mode, rocksdb::Env* env);

}  // namespace batchmill
