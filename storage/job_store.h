// Jobs, lines, plan, results and ledger in one RocksDB database, with every rule that must hold
// across a crash. Thread-safe; calls block (reads: microseconds to milliseconds; durable writes:
// one log sync, shared by concurrent callers). Throws StorageError on failure.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "storage/error.h"
#include "storage/options.h"
#include "storage/plan.h"
#include "storage/records.h"
#include "storage/store_care.h"

namespace batchmill {

enum class ResultOrder : std::uint8_t { kInput, kCompleted };

class JobStore : public StoreCare {
 public:
  enum class Mode { kReadWrite, kReadOnly };

  // Opens (kReadWrite: creates) the database in `directory`; the caller holds the data directory's
  // lock. Recovers: lines stored after the watermark are simply prepared again.
  static std::unique_ptr<JobStore> open(const std::string& directory, const StorageOptions& options,
                                        Mode mode);

  // --- Jobs. `now_s`: unix seconds; stored times never go back.
  struct Opened {
    Job job;
    bool existed = false;  // the idempotency key was known
    // … with what makes it another job, in words: what
    // the first had: "other content", "no --strict".
    std::string conflict;
  };
  virtual Opened open_job(const JobRequest& request, std::int64_t now_ms) = 0;  // durable
  virtual std::optional<Job> job(const JobId& id) const = 0;
  // Each owner's keys are its own; "" is the operator.
  virtual std::optional<Job> job_of_key(const std::string& idempotency_key,
                                        const std::string& owner = "") const = 0;
  // Newest first; `after`: strictly older than it; `status`: only these ("" = all), of this owner.
  virtual std::vector<Job> list(const std::optional<JobId>& after, std::size_t limit,
                                const std::string& status,
                                const std::optional<std::string>& owner = std::nullopt) const = 0;
  virtual std::vector<JobId> unfinished_jobs() const = 0;  // oldest first

  // --- Intake. Lines are numbered without gaps from total_lines + 1; `upload_offset_bytes` is the
  // content offset behind the last of them. Repeated lines are skipped, and so are lines of a job
  // that has ended or whose upload has: then it returns false. Blank lines are passed too. Throws
  // std::invalid_argument on a gap. The lines survive a killed process when it returns, a power cut
  // after the next sync().
  virtual bool write_lines(const JobId& id, std::span<const StoredLine> lines,
                           std::uint64_t upload_offset_bytes, std::int64_t now_us) = 0;
  // All that was written before is durable when it returns. Writing goes on meanwhile.
  virtual void sync() = 0;
  // Why nothing can be written any more, whatever space there is, until the store is opened anew;
  // "" while something can. What was durable is.
  virtual std::string why_lost() const = 0;
  // Both.
  void append_lines(const JobId& id, std::span<const StoredLine> lines,
                    std::uint64_t upload_offset_bytes, std::int64_t now_us) {
    write_lines(id, lines, upload_offset_bytes, now_us);
    sync();
  }
  // Ends the upload. An empty job (no line that is not blank) is removed: returns false.
  virtual bool seal(const JobId& id, const std::string& content_hash, std::int64_t now_s) = 0;
  // The upload broke for good: the lines so far run, the job then ends `failed` with `code`.
  virtual void truncate(const JobId& id, const std::string& code, const std::string& message,
                        std::int64_t now_s) = 0;

  // --- Preparation.
  virtual std::vector<StoredLine> read_lines(const JobId& id, std::uint64_t first_line,
                                             std::size_t max_lines,
                                             std::size_t max_bytes) const = 0;
  struct Prepared {
    std::uint64_t first_line = 0;  // must be prepared_through + 1
    std::uint64_t last_line = 0;  // the new watermark
    std::vector<PlanEntry> entries;
    std::vector<LineResult> failures;
    // custom_id → line of the lines that own theirs (see find_owners).
    std::vector<std::pair<std::string, std::uint64_t>> custom_ids;
    std::vector<std::string> warnings;
  };
  // The line that owns each of `custom_ids` so far, or 0; maybe one that is prepared once more.
  virtual std::vector<std::uint64_t> find_owners(const JobId& id,
                                                 std::span<const std::string> custom_ids) const = 0;
  // Makes the lines own their ids, before they are prepared: a strict job is checked first. Not
  // durable: it is checked again.
  virtual void claim_ids(const JobId& id,
                         std::span<const std::pair<std::string, std::uint64_t>> custom_ids) = 0;
  // One atomic write, durable with failures. Ignored (false) when the job has ended or the
  // watermark is already past. Lines that have a result already get no second one and no entry.
  virtual bool commit_prepared(const JobId& id, Prepared prepared, std::int64_t now_s) = 0;
  virtual void set_strict_checked(const JobId& id) = 0;
  virtual void fail_job(const JobId& id, const std::string& code,
                        std::vector<JobState::JobError> errors, std::int64_t now_s) = 0;
  // Once all lines are prepared: computes prefix_trie_tokens by one ordered scan and stores it.
  // Before that, and when it is known, it does nothing.
  virtual void measure_prefixes(const JobId& id) = 0;

  // --- Plan (see plan.h) and attempts. Lines of ended jobs and of `skipped` ones are left out; go
  // on at `page.next`.
  virtual PlanPage read_plan(const PlanRange& range, std::size_t max_entries,
                             const std::set<JobId>& skipped = {}) const = 0;
  virtual std::optional<PlanEntry> plan_entry(const PlanKey& key) const = 0;  // absent: it is gone
  virtual std::vector<PlanLevel> plan_levels() const = 0;
  virtual std::uint64_t plan_serial() const = 0;  // of the newest entry
  // Replaces entries whose lines were prepared again (another fingerprint, lane or priority): one
  // atomic write; a line that has no entry at its old key any more gets none.
  virtual void replace_plan(std::span<const PlanKey> old_keys,
                            std::span<const PlanEntry> entries) = 0;
  // Adds 1 to the lines' attempts (not synced) and returns the new counts.
  virtual std::vector<std::uint32_t> begin_attempts(std::span<const LineKey> lines) = 0;
  virtual std::vector<std::uint32_t> attempts(std::span<const LineKey> lines) const = 0;
  virtual void clear_attempts(std::span<const LineKey> lines) = 0;  // a clean stop put them back
  virtual void clear_all_attempts() = 0;  // what ended the process came from outside

  // --- Results. One atomic, durable write for the whole group; a line that already has a result,
  // or whose job has ended, is left out. Returns which were written. `plan_keys` are removed: the
  // entries of lines in the group, in any order (none for a line that had no entry).
  virtual std::vector<bool> commit_results(std::span<const LineResult> results,
                                           std::span<const PlanKey> plan_keys,
                                           std::int64_t now_s) = 0;
  // Jobs that have all their results now end (completed, failed); returns those that did.
  virtual std::vector<JobId> end_finished_jobs(std::int64_t now_s) = 0;
  virtual void set_paused(const JobId& id, bool paused) = 0;
  // The durable record that ends a job at once: lines without a result read as `code`
  // (batch_cancelled, batch_expired). False when it had ended already.
  virtual bool end_job(const JobId& id, const std::string& code, std::int64_t now_s) = 0;
  // Removes up to `max_entries` plan entries of ended jobs; false when none are left.
  virtual bool drain_plan(std::size_t max_entries) = 0;

  // --- Reading results.
  struct ResultPage {
    std::vector<LineResult> results;
    std::uint64_t next = 0;  // pass as `from` to go on
    bool at_end = false;  // nothing behind `next` now (more may come while the job runs)
  };
  // `from`: 0 at first. Order kInput is by line, kCompleted by the order of finishing. For an ended
  // job, lines without a result come out as failures with the job's end code, in completed order
  // last: see LineResult::ended_with_job.
  virtual ResultPage read_results(const JobId& id, ResultOrder order, std::uint64_t from,
                                  std::size_t max_results, std::size_t max_bytes) const = 0;
  virtual std::optional<LineResult> result(const LineKey& key) const = 0;
  virtual std::uint64_t find_line(const JobId& id,
                                  const std::string& custom_id) const = 0;  // 0: none
  virtual std::optional<StoredLine> line(const LineKey& key) const = 0;

  // --- Ledger. Rows of one job, or of all jobs (of `owner`) without `id`. The sink may throw.
  using LedgerSink = std::function<void(const LedgerRow&)>;
  virtual void read_ledger(const std::optional<JobId>& id, LedgerBy by, const LedgerSink& sink,
                           const std::optional<std::string>& owner = std::nullopt) const = 0;
  // By line, from this line of the job on.
  virtual void read_line_ledger(const JobId& id, std::uint64_t first_line,
                                const LedgerSink& sink) const = 0;
};

}  // namespace batchmill
