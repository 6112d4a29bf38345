// What must hold between the column families, checked record by record.
#include <map>

#include "storage/keys.h"
#include "storage/record_codec.h"
#include "storage/store.h"

namespace batchmill {
namespace {

constexpr std::size_t kMaxProblems = 100;

// A bit per line of one job.
using LineSet = std::vector<bool>;

void set_bit(LineSet& lines, std::uint64_t line) {
  if (line < lines.size()) lines[line] = true;
}

bool get_bit(const LineSet& lines, std::uint64_t line) {
  return line < lines.size() && lines[line];
}

std::string name(const LineKey& key) {
  return key.job.to_string() + " line " + std::to_string(key.line);
}

bool same_amounts(const LedgerRow& a, const LedgerRow& b) {
  return a.completed == b.completed && a.failed == b.failed && a.usage == b.usage &&
         a.cost_prompt == b.cost_prompt && a.cost_prompt_cached == b.cost_prompt_cached &&
         a.cost_completion == b.cost_completion;
}

LineKey line_at(Family family, const Database::Cursor& cursor) {
  const auto key = keys::parse_line_key(cursor.key());
  if (!key) codec::throw_damaged({family_name(family), cursor.key()}, "no line key");
  return *key;
}

// One pass over everything. Memory: a few bits per line.
class Checker {
 public:
  Checker(const Database& database, const rocksdb::Snapshot* snapshot,
          const std::map<JobId, Job>& jobs)
      : database_(database), snapshot_(snapshot), jobs_(jobs) {}

  JobStore::CheckReport run() {
    report_.jobs = jobs_.size();
    check_plan();
    for (Family family : {Family::kLines, Family::kResults, Family::kDone, Family::kIds,
                          Family::kLedger, Family::kPrompts, Family::kAttempts}) {
      check_owners(family);
    }
    for (const auto& [id, job] : jobs_) check_job(job);
    return std::move(report_);
  }

 private:
  // What one job's lines and results say.
  struct Truth {
    LineSet stored;
    LineSet blank;
    LineSet answered;
    std::uint64_t num_results = 0;
    JobCounters counters;
    std::map<keys::LedgerKey, LedgerRow> ledger;
  };

  void problem(std::string text) {
    if (report_.problems.size() < kMaxProblems) report_.problems.push_back(std::move(text));
  }

  Database::Cursor cursor_of(Family family, const JobId& id) const {
    const std::string prefix = keys::job_prefix(id);
    return {database_, family, prefix, keys::behind(prefix), snapshot_};
  }

  void check_plan() {
    const bool may_hold_ended = database_.get(Family::kMeta, keys::kDrain, snapshot_).has_value();
    for (Database::Cursor cursor(database_, Family::kPlan, {}, {}, snapshot_); cursor.valid();
         cursor.next()) {
      ++report_.plan_entries;
      const LineKey key = codec::decode_plan_entry({"plan", cursor.key()}, cursor.value()).key;
      const auto job = jobs_.find(key.job);
      if (job == jobs_.end()) {
        problem("plan: entry of an unknown job, " + name(key));
      } else if (job->second.ended()) {
        if (!may_hold_ended) problem("plan: entry of an ended job, " + name(key));
      } else if (key.line > job->second.state.prepared_through) {
        problem("plan: entry behind the watermark, " + name(key));
      } else {
        LineSet& lines = planned_[key.job];
        lines.resize(job->second.state.total_lines + 1);
        if (get_bit(lines, key.line)) problem("plan: two entries of " + name(key));
        set_bit(lines, key.line);
      }
    }
  }

  // Every record belongs to a job: one look per job, not one per record.
  void check_owners(Family family) {
    std::string at;
    do {
      Database::Cursor cursor(database_, family, at, {}, snapshot_);
      if (!cursor.valid()) return;
      const std::string_view key = cursor.key();
      if (key.size() < keys::kJobBytes || !jobs_.contains(keys::get_job(key.data()))) {
        problem(std::string(family_name(family)) + ": record of an unknown job, key " +
                keys::hex(key));
      }
      at = keys::behind(key.substr(0, keys::kJobBytes));
    } while (!at.empty());
  }

  void check_job(const Job& job) {
    Truth truth;
    read_lines(job, truth);
    read_results(job, truth);
    if (!(truth.counters == job.counters)) {
      problem("jobs: the counters of " + job.id.to_string() + " are not the sums of its results");
    }
    check_done(job, truth);
    check_ledger(job, truth);
    check_ids(job, truth);
    check_watermark(job, truth);
  }

  void read_lines(const Job& job, Truth& truth) {
    truth.stored.resize(job.state.total_lines + 1);
    truth.blank.resize(job.state.total_lines + 1);
    truth.answered.resize(job.state.total_lines + 1);
    std::uint64_t num_lines = 0;
    std::uint64_t num_requests = 0;
    for (Database::Cursor cursor = cursor_of(Family::kLines, job.id); cursor.valid();
         cursor.next()) {
      const StoredLine line = codec::decode_line({"lines", cursor.key()}, cursor.value(),
                                                 line_at(Family::kLines, cursor).line);
      const bool is_blank = line.is_blank();
      num_lines += line.num_lines;
      if (!is_blank) ++num_requests;
      for (std::uint64_t number = line.first_line(); number <= line.line; ++number) {
        set_bit(truth.stored, number);
        if (is_blank) set_bit(truth.blank, number);
      }
    }
    report_.lines += num_requests;
    if (num_lines != job.state.total_lines || num_requests != job.state.request_lines) {
      problem("jobs: " + job.id.to_string() + " counts " + std::to_string(job.state.total_lines) +
              " lines, but " + std::to_string(num_lines) + " are stored");
    }
  }

  void read_results(const Job& job, Truth& truth) {
    for (Database::Cursor cursor = cursor_of(Family::kResults, job.id); cursor.valid();
         cursor.next()) {
      const LineKey key = line_at(Family::kResults, cursor);
      std::uint64_t sequence = 0;
      const LineResult result =
          codec::decode_result({"results", cursor.key()}, cursor.value(), key, &sequence);
      ++truth.num_results;
      set_bit(truth.answered, key.line);
      if (!get_bit(truth.stored, key.line)) problem("results: no such line, " + name(key));
      if (get_bit(planned_[job.id], key.line)) {
        problem("plan: entry beside a result, " + name(key));
      }
      const std::string done_key = keys::line_key({job.id, sequence});
      const auto done = database_.get(Family::kDone, done_key, snapshot_);
      if (!done || codec::decode_number({"done", done_key}, *done) != key.line) {
        problem("done: does not name the result of " + name(key));
      }
      const LedgerRow row = ledger_of(result);
      truth.counters.add(result);
      truth
          .ledger[{job.id, day_of(result.times.finished_us / 1'000'000), row.model, row.currency,
                   row.price_version}]
          .add(row);
    }
    report_.results += truth.num_results;
  }

  void check_done(const Job& job, const Truth& truth) {
    std::uint64_t num_done = 0;
    for (Database::Cursor cursor = cursor_of(Family::kDone, job.id); cursor.valid();
         cursor.next()) {
      ++num_done;
    }
    if (num_done != truth.num_results) {
      problem("done: " + std::to_string(num_done) + " entries for " +
              std::to_string(truth.num_results) + " results of " + job.id.to_string());
    }
  }

  void check_ledger(const Job& job, const Truth& truth) {
    std::size_t num_rows = 0;
    for (Database::Cursor cursor = cursor_of(Family::kLedger, job.id); cursor.valid();
         cursor.next()) {
      const codec::Place place{"ledger", cursor.key()};
      const auto key = keys::parse_ledger_key(cursor.key());
      if (!key) codec::throw_damaged(place, "no ledger key");
      ++num_rows;
      const auto expected = truth.ledger.find(*key);
      if (expected == truth.ledger.end() ||
          !same_amounts(codec::decode_ledger(place, cursor.value()), expected->second)) {
        problem("ledger: a row of " + job.id.to_string() + " is not the sum of its results");
      }
    }
    if (num_rows != truth.ledger.size()) {
      problem("ledger: rows of " + job.id.to_string() + " are missing");
    }
  }

  void check_ids(const Job& job, const Truth& truth) {
    for (Database::Cursor cursor = cursor_of(Family::kIds, job.id); cursor.valid(); cursor.next()) {
      const std::uint64_t owner = codec::decode_number({"ids", cursor.key()}, cursor.value());
      if (!get_bit(truth.stored, owner)) {
        problem("ids: names a line that is not there, " + name({job.id, owner}));
      }
    }
  }

  // No line is lost: up to the watermark each is pending, answered or blank.
  void check_watermark(const Job& job, const Truth& truth) {
    if (job.state.prepared_through > job.state.total_lines) {
      problem("jobs: the watermark of " + job.id.to_string() + " is behind its last line");
    }
    if (job.ended()) return;
    const LineSet& plan = planned_[job.id];
    for (std::uint64_t line = 1; line <= job.state.prepared_through; ++line) {
      if (!get_bit(plan, line) && !get_bit(truth.answered, line) && !get_bit(truth.blank, line)) {
        problem("plan: a prepared line has neither entry nor result, " + name({job.id, line}));
      }
    }
  }

  const Database& database_;
  const rocksdb::Snapshot* snapshot_;
  const std::map<JobId, Job>& jobs_;
  std::map<JobId, LineSet> planned_;
  JobStore::CheckReport report_;
};

}  // namespace

JobStore::CheckReport Store::check() const {
  const SnapshotGuard snapshot(database_);
  std::map<JobId, Job> jobs;
  for (Database::Cursor cursor(database_, Family::kJobs, {}, {}, snapshot.get()); cursor.valid();
       cursor.next()) {
    if (cursor.key().size() != keys::kJobBytes + 1) {
      codec::throw_damaged({"jobs", cursor.key()}, "no job key");
    }
    const JobId id = keys::get_job(cursor.key().data());
    if (jobs.contains(id)) continue;
    jobs.emplace(id, *read_job(id, snapshot.get()));
  }
  return Checker(database_, snapshot.get(), jobs).run();
}

}  // namespace batchmill
