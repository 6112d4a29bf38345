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

struct Sums {
  JobCounters counters;
  std::map<keys::LedgerKey, LedgerRow> ledger;
};

bool same_amounts(const LedgerRow& a, const LedgerRow& b) {
  return a.completed == b.completed && a.failed == b.failed && a.usage == b.usage &&
         a.cost_prompt == b.cost_prompt && a.cost_prompt_cached == b.cost_prompt_cached &&
         a.cost_completion == b.cost_completion;
}

}  // namespace

JobStore::CheckReport Store::check() const {
  const SnapshotGuard snapshot(database_);
  CheckReport report;
  const auto problem = [&](std::string text) {
    if (report.problems.size() < kMaxProblems) report.problems.push_back(std::move(text));
  };
  const auto name = [](const LineKey& key) {
    return key.job.to_string() + " line " + std::to_string(key.line);
  };

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
  report.jobs = jobs.size();

  std::map<JobId, LineSet> planned;
  const bool may_hold_ended = database_.get(Family::kMeta, "drain", snapshot.get()).has_value();
  for (Database::Cursor cursor(database_, Family::kPlan, {}, {}, snapshot.get()); cursor.valid();
       cursor.next()) {
    ++report.plan_entries;
    const PlanEntry entry = codec::decode_plan_entry({"plan", cursor.key()}, cursor.value());
    const auto job = jobs.find(entry.key.job);
    if (job == jobs.end()) {
      problem("plan: entry of an unknown job, " + name(entry.key));
      continue;
    }
    if (job->second.ended()) {
      if (!may_hold_ended) problem("plan: entry of an ended job, " + name(entry.key));
      continue;
    }
    if (entry.key.line > job->second.state.prepared_through) {
      problem("plan: entry behind the watermark, " + name(entry.key));
      continue;
    }
    LineSet& lines = planned[entry.key.job];
    lines.resize(job->second.state.total_lines + 1);
    if (get_bit(lines, entry.key.line)) problem("plan: two entries of " + name(entry.key));
    set_bit(lines, entry.key.line);
  }

  const auto is_known = [&](Family family, std::string_view key) {
    if (key.size() >= keys::kJobBytes && jobs.contains(keys::get_job(key.data()))) return true;
    problem(std::string(family_name(family)) + ": record of an unknown job, key " + keys::hex(key));
    return false;
  };
  for (Family family : {Family::kLines, Family::kResults, Family::kDone, Family::kIds,
                        Family::kLedger, Family::kPrompts, Family::kAttempts}) {
    // One look per job that has records, not one per record.
    std::string at;
    while (true) {
      Database::Cursor cursor(database_, family, at, {}, snapshot.get());
      if (!cursor.valid()) break;
      is_known(family, cursor.key());
      at = keys::behind(cursor.key().substr(0, keys::kJobBytes));
      if (at.empty()) break;
    }
  }

  for (const auto& [id, job] : jobs) {
    const std::string prefix = keys::job_prefix(id);
    const std::string end = keys::behind(prefix);
    LineSet blank(job.state.total_lines + 1);
    LineSet stored(job.state.total_lines + 1);
    std::uint64_t num_lines = 0;
    std::uint64_t num_requests = 0;
    for (Database::Cursor cursor(database_, Family::kLines, prefix, end, snapshot.get());
         cursor.valid(); cursor.next()) {
      const auto key = keys::parse_line_key(cursor.key());
      if (!key) codec::throw_damaged({"lines", cursor.key()}, "no line key");
      ++num_lines;
      set_bit(stored, key->line);
      const StoredLine line =
          codec::decode_line({"lines", cursor.key()}, cursor.value(), key->line);
      if (line.is_blank()) {
        set_bit(blank, key->line);
      } else {
        ++num_requests;
      }
    }
    report.lines += num_lines;
    if (num_lines != job.state.total_lines || num_requests != job.state.request_lines) {
      problem("jobs: " + id.to_string() + " counts " + std::to_string(job.state.total_lines) +
              " lines, but " + std::to_string(num_lines) + " are stored");
    }

    Sums sums;
    LineSet answered(job.state.total_lines + 1);
    std::uint64_t num_results = 0;
    for (Database::Cursor cursor(database_, Family::kResults, prefix, end, snapshot.get());
         cursor.valid(); cursor.next()) {
      const auto key = keys::parse_line_key(cursor.key());
      if (!key) codec::throw_damaged({"results", cursor.key()}, "no line key");
      std::uint64_t sequence = 0;
      const LineResult result =
          codec::decode_result({"results", cursor.key()}, cursor.value(), *key, &sequence);
      ++num_results;
      if (!get_bit(stored, key->line)) problem("results: no such line, " + name(*key));
      set_bit(answered, key->line);
      const LineSet& plan = planned[id];
      if (get_bit(plan, key->line)) problem("plan: entry beside a result, " + name(*key));
      const std::string done_key = keys::line_key({id, sequence});
      const auto done = database_.get(Family::kDone, done_key, snapshot.get());
      if (!done || codec::decode_number({"done", done_key}, *done) != key->line) {
        problem("done: does not name the result of " + name(*key));
      }
      const LedgerRow row = ledger_of(result);
      sums.counters.completed += row.completed;
      sums.counters.failed += row.failed;
      sums.counters.usage += row.usage;
      sums.counters.result_bytes += result.output.size();
      sums.ledger[{id, day_of(result.times.finished_us / 1'000'000), row.model, row.currency,
                   row.price_version}]
          .add(row);
    }
    report.results += num_results;
    if (!(sums.counters == job.counters)) {
      problem("jobs: the counters of " + id.to_string() + " are not the sums of its results");
    }

    std::uint64_t num_done = 0;
    for (Database::Cursor cursor(database_, Family::kDone, prefix, end, snapshot.get());
         cursor.valid(); cursor.next()) {
      ++num_done;
    }
    if (num_done != num_results) {
      problem("done: " + std::to_string(num_done) + " entries for " + std::to_string(num_results) +
              " results of " + id.to_string());
    }

    std::size_t num_rows = 0;
    for (Database::Cursor cursor(database_, Family::kLedger, prefix, end, snapshot.get());
         cursor.valid(); cursor.next()) {
      const auto key = keys::parse_ledger_key(cursor.key());
      if (!key) codec::throw_damaged({"ledger", cursor.key()}, "no ledger key");
      ++num_rows;
      const auto expected = sums.ledger.find(*key);
      if (expected == sums.ledger.end() ||
          !same_amounts(codec::decode_ledger({"ledger", cursor.key()}, cursor.value()),
                        expected->second)) {
        problem("ledger: a row of " + id.to_string() + " is not the sum of its results");
      }
    }
    if (num_rows != sums.ledger.size()) {
      problem("ledger: rows of " + id.to_string() + " are missing");
    }

    for (Database::Cursor cursor(database_, Family::kIds, prefix, end, snapshot.get());
         cursor.valid(); cursor.next()) {
      const std::uint64_t owner = codec::decode_number({"ids", cursor.key()}, cursor.value());
      if (!get_bit(stored, owner)) {
        problem("ids: names a line that is not there, " + name({id, owner}));
      }
    }

    if (job.state.prepared_through > job.state.total_lines) {
      problem("jobs: the watermark of " + id.to_string() + " is behind its last line");
    }
    if (job.ended()) continue;
    const LineSet& plan = planned[id];
    for (std::uint64_t line = 1; line <= job.state.prepared_through; ++line) {
      if (!get_bit(plan, line) && !get_bit(answered, line) && !get_bit(blank, line)) {
        problem("plan: a prepared line has neither entry nor result, " + name({id, line}));
      }
    }
  }
  return report;
}

}  // namespace batchmill
