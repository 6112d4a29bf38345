// Reading results, in both orders, with the lines that ended with their job.
#include <algorithm>

#include "storage/keys.h"
#include "storage/record_codec.h"
#include "storage/store.h"

namespace batchmill {
namespace {

// In completed order, positions from here on number lines that ended with their job.
constexpr std::uint64_t kEndedLines = 1ull << 63;
// Results that are looked up at once.
constexpr std::size_t kFoundTogether = 256;

}  // namespace

LineResult Store::ended_line(const Job& job, StoredLine line) const {
  LineResult result;
  result.key = {job.id, line.line};
  result.outcome = LineOutcome::kFailed;
  result.error_code = job.state.end_code;
  result.times.queued_us = line.queued_us;
  result.times.finished_us = job.state.end_time_s() * 1'000'000;
  result.price.currency.clear();
  result.ended_with_job = true;
  result.input = std::move(line.bytes);
  return result;
}

JobStore::ResultPage Store::read_results(const JobId& id, ResultOrder order, std::uint64_t from,
                                         std::size_t max_results, std::size_t max_bytes) const {
  const SnapshotGuard snapshot(database_);
  const std::optional<Job> job = read_job(id, snapshot.get());
  if (!job) throw StorageError(StorageError::Kind::kMissing, "no job " + id.to_string());
  const bool has_ended_lines =
      job->ended() && job->counters.completed + job->counters.failed < job->state.request_lines;
  const std::string job_end = keys::behind(keys::job_prefix(id));
  ResultPage page;
  page.next = from;
  std::size_t num_bytes = 0;
  // False when the page is full; then `result` belongs to the next one.
  const auto add = [&](LineResult result) {
    num_bytes += result.output.size() + result.input.size();
    if (page.results.size() >= max_results || (!page.results.empty() && num_bytes > max_bytes)) {
      return false;
    }
    page.results.push_back(std::move(result));
    return true;
  };
  const auto place = [](Family family, Database::Cursor& cursor) {
    return codec::Place{family_name(family), cursor.key()};
  };
  const auto line_at = [&](Family family, Database::Cursor& cursor) {
    const auto key = keys::parse_line_key(cursor.key());
    if (!key) codec::throw_damaged(place(family, cursor), "no line key");
    return key->line;
  };

  if (order == ResultOrder::kInput && !has_ended_lines) {
    for (Database::Cursor cursor(database_, Family::kResults, keys::line_key({id, from}), job_end,
                                 snapshot.get());
         cursor.valid(); cursor.next()) {
      const std::uint64_t line = line_at(Family::kResults, cursor);
      if (!add(codec::decode_result(place(Family::kResults, cursor), cursor.value(), {id, line},
                                    nullptr))) {
        return page;
      }
      page.next = line + 1;
    }
    page.at_end = true;
    return page;
  }

  if (order == ResultOrder::kCompleted && from < kEndedLines) {
    Database::Cursor cursor(database_, Family::kDone, keys::line_key({id, from}), job_end,
                            snapshot.get());
    while (cursor.valid()) {
      // Many at a time: together they are found faster than one by one.
      std::vector<std::uint64_t> sequences;
      std::vector<LineKey> lines;
      std::vector<std::string> line_keys;
      // One more than the page takes shows that it is full.
      const std::size_t room = max_results - std::min(max_results, page.results.size());
      const std::size_t together = std::min(kFoundTogether - 1, room) + 1;
      for (; cursor.valid() && lines.size() < together; cursor.next()) {
        sequences.push_back(line_at(Family::kDone, cursor));
        lines.push_back({id, codec::decode_number(place(Family::kDone, cursor), cursor.value())});
        line_keys.push_back(keys::line_key(lines.back()));
      }
      const auto values = database_.get_many(Family::kResults, line_keys, snapshot.get());
      for (std::size_t i = 0; i < lines.size(); ++i) {
        if (!values[i]) codec::throw_damaged({"results", line_keys[i]}, "is done but not there");
        if (!add(codec::decode_result({"results", line_keys[i]}, *values[i], lines[i], nullptr))) {
          return page;
        }
        page.next = sequences[i] + 1;
      }
    }
    if (has_ended_lines) from = page.next = kEndedLines;
  }
  if (!has_ended_lines) {
    page.at_end = true;
    return page;
  }

  // Both columns side by side: a line is answered by its result, or by the job's end.
  const bool with_results = order == ResultOrder::kInput;
  const std::uint64_t mark = with_results ? 0 : kEndedLines;
  Database::Cursor results(database_, Family::kResults, keys::line_key({id, from - mark}), job_end,
                           snapshot.get());
  for (Database::Cursor lines(database_, Family::kLines, keys::line_key({id, from - mark}), job_end,
                              snapshot.get());
       lines.valid(); lines.next()) {
    const std::uint64_t line = line_at(Family::kLines, lines);
    while (results.valid() && line_at(Family::kResults, results) < line) results.next();
    if (results.valid() && line_at(Family::kResults, results) == line) {
      if (with_results && !add(codec::decode_result(place(Family::kResults, results),
                                                    results.value(), {id, line}, nullptr))) {
        return page;
      }
    } else {
      StoredLine stored = codec::decode_line(place(Family::kLines, lines), lines.value(), line);
      if (!stored.is_blank() && !add(ended_line(*job, std::move(stored)))) return page;
    }
    page.next = mark + line + 1;
  }
  page.at_end = true;
  return page;
}

std::optional<LineResult> Store::result(const LineKey& key) const {
  const std::string bytes = keys::line_key(key);
  if (const auto value = database_.get(Family::kResults, bytes)) {
    return codec::decode_result({"results", bytes}, *value, key, nullptr);
  }
  const std::optional<Job> job = read_job(key.job, nullptr);
  if (!job || !job->ended()) return std::nullopt;
  std::optional<StoredLine> stored = line(key);
  if (!stored || stored->is_blank()) return std::nullopt;
  return ended_line(*job, std::move(*stored));
}

}  // namespace batchmill
