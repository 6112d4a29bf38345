// Everything but lines and results, computed again from them.
#include <set>

#include "storage/keys.h"
#include "storage/record_codec.h"
#include "storage/store.h"

namespace batchmill {
namespace {

constexpr std::size_t kChunkResults = 1'000;

}  // namespace

void Store::rebuild() {
  const std::lock_guard lock(state_mutex_);
  rocksdb::WriteBatch wipe;
  // While this mark is there, opening the store starts over.
  put(wipe, Family::kMeta, keys::kRebuilding, codec::encode_number(1));
  erase(wipe, Family::kMeta, keys::kDrain);
  database_.write(wipe, true, "rebuild_wipe");
  // Their files go unread: a damaged one is no hindrance.
  for (Family family : {Family::kIds, Family::kPlan, Family::kPrompts, Family::kAttempts,
                        Family::kDone, Family::kLedger}) {
    database_.clear(family);
  }
  for (const JobId& id : job_ids()) {
    const std::optional<Job> job = read_job(id, nullptr);
    if (job) rebuild_job(*job);
  }
  rocksdb::WriteBatch done;
  erase(done, Family::kMeta, keys::kRebuilding);
  database_.write(done, true, "rebuild_done");
  drain_wanted_ = drain_again_ = false;
  drain_from_.clear();
  plan_fronts_.clear();
  const std::unique_lock jobs_lock(jobs_mutex_);
  live_jobs_.clear();
  load_jobs();
}

void Store::rebuild_job(const Job& job) {
  const std::string prefix = keys::job_prefix(job.id);
  const std::string end = keys::behind(prefix);
  JobState state = job.state;
  state.total_lines = 0;
  state.request_lines = 0;
  for (Database::Cursor cursor(database_, Family::kLines, prefix, end); cursor.valid();
       cursor.next()) {
    const auto key = keys::parse_line_key(cursor.key());
    if (!key) codec::throw_damaged({"lines", cursor.key()}, "no line key");
    state.total_lines = key->line;
    if (!codec::decode_line({"lines", cursor.key()}, cursor.value(), key->line).is_blank()) {
      ++state.request_lines;
    }
  }

  rocksdb::WriteBatch batch;
  JobCounters counters;
  std::set<std::string> owned;  // ids of this batch
  std::size_t in_batch = 0;
  for (Database::Cursor cursor(database_, Family::kResults, prefix, end); cursor.valid();
       cursor.next()) {
    const codec::Place place{"results", cursor.key()};
    const auto key = keys::parse_line_key(cursor.key());
    if (!key) codec::throw_damaged(place, "no line key");
    std::uint64_t sequence = 0;
    const LineResult result = codec::decode_result(place, cursor.value(), *key, &sequence);
    put(batch, Family::kDone, keys::line_key({job.id, sequence}), codec::encode_number(key->line));
    const LedgerRow row = ledger_of(result);
    database_.check(
        batch.Merge(database_.handle(Family::kLedger),
                    keys::ledger_key({job.id, day_of(result.times.finished_us / 1'000'000),
                                      row.model, row.currency, row.price_version}),
                    codec::encode_ledger(row)));
    counters.add(result);
    // Results come in line order, so the first that carries an id owns it, unless it says itself
    // that an earlier line, which is still pending, does.
    if (result.has_custom_id && result.error_code != "duplicate_custom_id" &&
        find_line(job.id, result.custom_id) == 0 && owned.insert(result.custom_id).second) {
      put(batch, Family::kIds, keys::id_key(job.id, result.custom_id),
          codec::encode_number(key->line));
    }
    if (++in_batch == kChunkResults) {
      database_.write(batch, false, "rebuild_part");
      batch.Clear();
      owned.clear();
      in_batch = 0;
    }
  }

  if (!job.ended()) {
    // Token ids are not in the lines: they are made again, and counted again unless the job's
    // prefixes are measured already.
    state.prepared_through = 0;
    if (state.prefix_trie_tokens == 0) {
      state.prefix_prompt_tokens = 0;
    }
  }
  put(batch, Family::kJobs, keys::job_key(job.id, keys::JobPart::kCounters),
      codec::encode_counters(counters));
  put(batch, Family::kJobs, keys::job_key(job.id, keys::JobPart::kUpload),
      codec::encode_upload(state));
  put_progress(batch, job.id, state);
  database_.write(batch, true, "rebuild_job");
}

}  // namespace batchmill
