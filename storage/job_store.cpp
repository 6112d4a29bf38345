#include "storage/job_store.h"

#include <algorithm>
#include <random>
#include <stdexcept>

#include "storage/keys.h"
#include "storage/record_codec.h"
#include "storage/repair.h"
#include "storage/store.h"

namespace batchmill {
namespace {

bool differ(const std::string& a, const std::string& b) {
  return !a.empty() && !b.empty() && a != b;
}

JobId make_id(std::int64_t ms) {
  JobId id;
  for (std::size_t i = 0; i < 6; ++i) {
    id.bytes[i] = static_cast<std::uint8_t>(ms >> (40 - 8 * static_cast<int>(i)));
  }
  std::random_device random;
  for (std::size_t i = 6; i < id.bytes.size(); ++i) {
    id.bytes[i] = static_cast<std::uint8_t>(random());
  }
  return id;
}

}  // namespace

std::unique_ptr<JobStore> JobStore::open(const std::string& directory,
                                         const StorageOptions& options, Mode mode) {
  return open_store(directory, options, mode, nullptr);
}

std::unique_ptr<JobStore> open_store(const std::string& directory, const StorageOptions& options,
                                     JobStore::Mode mode, rocksdb::Env* env) {
  return std::make_unique<Store>(directory, options, mode, env);
}

std::unique_ptr<JobStore> open_up_to_damage(const std::string& directory,
                                            const StorageOptions& options) {
  return std::make_unique<Store>(directory, options, JobStore::Mode::kReadWrite, nullptr,
                                 Database::DamagedLog::kReadUpToDamage);
}

Store::Store(const std::string& directory, const StorageOptions& options, Mode mode,
             rocksdb::Env* env, Database::DamagedLog damaged_log)
    : database_(directory, options, mode == Mode::kReadOnly, env, damaged_log) {
  check_schema();
  const auto number = [&](std::string_view key) -> std::uint64_t {
    const auto value = database_.get(Family::kMeta, key);
    return value ? codec::decode_number({"meta", key}, *value) : 0;
  };
  last_us_ = static_cast<std::int64_t>(number(keys::kClock));
  last_serial_ = number(keys::kSerial);
  drain_wanted_ = database_.get(Family::kMeta, keys::kDrain).has_value();
  load_jobs();
  // A rebuild that was cut off left sums behind that are not whole.
  if (!database_.read_only() && database_.get(Family::kMeta, keys::kRebuilding)) rebuild();
}

void Store::check_schema() {
  const auto schema = database_.get(Family::kMeta, keys::kSchema);
  if (schema) {
    const std::uint64_t version = codec::decode_number({"meta", keys::kSchema}, *schema);
    if (version > kSchemaVersion) {
      throw StorageError(StorageError::Kind::kNewerSchema,
                         "the store was written by a newer program (schema " +
                             std::to_string(version) + ", this one knows " +
                             std::to_string(kSchemaVersion) + ")");
    }
    return;
  }
  if (database_.read_only()) {
    throw StorageError(StorageError::Kind::kMissing, "the store has never been finished");
  }
  if (Database::Cursor(database_, Family::kJobs, {}, {}).valid()) {
    throw StorageError(StorageError::Kind::kDamaged,
                       "the store is damaged: column family meta, key " + keys::hex(keys::kSchema) +
                           ": the schema version is missing");
  }
  rocksdb::WriteBatch batch;
  put(batch, Family::kMeta, keys::kSchema, codec::encode_number(kSchemaVersion));
  database_.write(batch, true, "set_schema");
}

std::vector<JobId> Store::job_ids() const {
  std::vector<JobId> ids;
  std::string at;
  do {
    Database::Cursor cursor(database_, Family::kJobs, at, {});
    if (!cursor.valid()) break;
    if (cursor.key().size() != keys::kJobBytes + 1) {
      codec::throw_damaged({"jobs", cursor.key()}, "no job key");
    }
    ids.push_back(keys::get_job(cursor.key().data()));
    at = keys::behind(keys::job_prefix(ids.back()));
  } while (!at.empty());
  return ids;
}

void Store::load_jobs() {
  for (const JobId& id : job_ids()) {
    std::optional<Job> job = read_job(id, nullptr);
    if (!job) codec::throw_damaged({"jobs", keys::job_prefix(id)}, "a part of the job is missing");
    if (!job->ended()) live_jobs_.emplace(id, std::make_shared<LiveJob>(std::move(*job)));
  }
}

Store::LiveJob::LiveJob(Job loaded)
    : stored_lines(loaded.state.total_lines), job(std::move(loaded)) {
  upload = {!job.ended() && job.state.upload == UploadState::kOpen, job.state.total_lines,
            job.state.request_lines, job.state.upload_offset_bytes};
}

JobState Store::LiveJob::state() const {
  JobState state = job.state;
  state.total_lines = upload.total_lines;
  state.request_lines = upload.request_lines;
  state.upload_offset_bytes = upload.offset_bytes;
  return state;
}

Store::LiveJobPtr Store::live(const JobId& id) const {
  const std::shared_lock lock(jobs_mutex_);
  const auto it = live_jobs_.find(id);
  return it == live_jobs_.end() ? nullptr : it->second;
}

Store::LiveJobPtr Store::live_or_throw_unknown(const JobId& id) const {
  LiveJobPtr found = live(id);
  if (found == nullptr &&
      !database_.get(Family::kJobs, keys::job_key(id, keys::JobPart::kRequest))) {
    throw StorageError(StorageError::Kind::kMissing, "no job " + id.to_string());
  }
  return found;
}

std::optional<Job> Store::read_job(const JobId& id, const rocksdb::Snapshot* snapshot) const {
  // The parts are one job only if they are read as of one moment.
  std::optional<SnapshotGuard> own_snapshot;
  if (snapshot == nullptr) snapshot = own_snapshot.emplace(database_).get();
  const auto read = [&](keys::JobPart part, auto&& decode) {
    const std::string key = keys::job_key(id, part);
    const auto value = database_.get(Family::kJobs, key, snapshot);
    if (value) decode(codec::Place{"jobs", key}, *value);
    return value.has_value();
  };
  Job job;
  job.id = id;
  const bool has_request = read(keys::JobPart::kRequest, [&](codec::Place place, auto& value) {
    job.request = codec::decode_request(place, value);
  });
  const bool has_upload = read(keys::JobPart::kUpload, [&](codec::Place place, auto& value) {
    codec::decode_upload(place, value, job.state);
  });
  const bool has_progress = read(keys::JobPart::kState, [&](codec::Place place, auto& value) {
    codec::decode_progress(place, value, job.state);
  });
  if (!has_request && !has_upload && !has_progress) return std::nullopt;
  if (!has_request || !has_upload || !has_progress) {
    codec::throw_damaged({"jobs", keys::job_prefix(id)}, "a part of the job is missing");
  }
  read(keys::JobPart::kCounters, [&](codec::Place place, auto& value) {
    job.counters = codec::decode_counters(place, value);
  });
  return job;
}

std::optional<Job> Store::job(const JobId& id) const {
  const SnapshotGuard snapshot(database_);
  std::optional<Job> job = read_job(id, snapshot.get());
  if (job && job->ended())
    job->counters.failed = job->state.request_lines - job->counters.completed;
  return job;
}

std::vector<Job> Store::list(const std::optional<JobId>& after, std::size_t limit,
                             const std::string& status,
                             const std::optional<std::string>& owner) const {
  std::vector<Job> jobs;
  std::string end = after ? keys::job_prefix(*after) : std::string();
  while (jobs.size() < limit) {
    Database::Cursor cursor(database_, Family::kJobs, {}, end, nullptr, true);
    if (!cursor.valid()) break;
    if (cursor.key().size() != keys::kJobBytes + 1) {
      codec::throw_damaged({"jobs", cursor.key()}, "no job key");
    }
    const JobId id = keys::get_job(cursor.key().data());
    end = keys::job_prefix(id);
    std::optional<Job> found = job(id);
    if (!found || (owner && found->request.owner != *owner)) continue;
    if (status.empty() || found->status() == status) jobs.push_back(std::move(*found));
  }
  return jobs;
}

std::vector<JobId> Store::unfinished_jobs() const {
  const std::shared_lock lock(jobs_mutex_);
  std::vector<JobId> ids;
  for (const auto& [id, live] : live_jobs_) ids.push_back(id);
  return ids;
}

std::optional<Job> Store::job_of_key(const std::string& idempotency_key,
                                     const std::string& owner) const {
  if (idempotency_key.empty()) return std::nullopt;
  const std::string key = keys::idempotency_key(owner, idempotency_key);
  const auto known = database_.get(Family::kMeta, key);
  if (!known) return std::nullopt;
  if (known->size() != keys::kJobBytes) codec::throw_damaged({"meta", key}, "no job id");
  return job(keys::get_job(known->data()));
}

JobStore::Opened Store::open_job(const JobRequest& request, std::int64_t now_ms) {
  const std::lock_guard lock(state_mutex_);
  if (std::optional<Job> first = job_of_key(request.idempotency_key, request.owner)) {
    const std::string& hash =
        first->state.content_hash.empty() ? first->request.content_hash : first->state.content_hash;
    std::string conflict;
    const auto add = [&](bool differs, const char* what) {
      if (differs) conflict += (conflict.empty() ? "" : " and ") + std::string(what);
    };
    add(differ(hash, request.content_hash), "other content");
    add(differ(first->request.model_fingerprint, request.model_fingerprint), "another model");
    // Of the options the only one that changes results: one bad line is one failure, or the job's.
    add(first->request.strict && !request.strict, "--strict");
    add(!first->request.strict && request.strict, "no --strict");
    return {std::move(*first), true, conflict};
  }
  rocksdb::WriteBatch batch;
  const std::int64_t ms = clock_us(std::max(now_ms, last_us_ / 1000 + 1) * 1000, batch) / 1000;
  Job job;
  job.id = make_id(ms);
  job.request = request;
  job.state.created_at_s = ms / 1000;
  put(batch, Family::kJobs, keys::job_key(job.id, keys::JobPart::kRequest),
      codec::encode_request(request));
  put(batch, Family::kJobs, keys::job_key(job.id, keys::JobPart::kUpload),
      codec::encode_upload(job.state));
  put_progress(batch, job.id, job.state);
  if (!request.idempotency_key.empty()) {
    put(batch, Family::kMeta, keys::idempotency_key(request.owner, request.idempotency_key),
        keys::job_prefix(job.id));
  }
  database_.write(batch, true, "open_job");
  Opened opened{job, false, ""};
  const std::unique_lock jobs_lock(jobs_mutex_);
  live_jobs_.emplace(job.id, std::make_shared<LiveJob>(std::move(job)));
  return opened;
}

std::int64_t Store::clock_us(std::int64_t now_us, rocksdb::WriteBatch& batch) {
  // In every batch: one that is given up must not take the clock's record with it.
  std::int64_t last_us = last_us_;
  while (last_us < now_us && !last_us_.compare_exchange_weak(last_us, now_us)) {
  }
  const std::int64_t us = std::max(last_us, now_us);
  put(batch, Family::kMeta, keys::kClock, codec::encode_number(static_cast<std::uint64_t>(us)));
  return us;
}

std::int64_t Store::clock_s(std::int64_t now_s, rocksdb::WriteBatch& batch) {
  return clock_us(now_s * 1'000'000, batch) / 1'000'000;
}

void Store::put(rocksdb::WriteBatch& batch, Family family, std::string_view key,
                std::string_view value) const {
  database_.check(
      batch.Put(database_.handle(family), {key.data(), key.size()}, {value.data(), value.size()}));
}

void Store::erase(rocksdb::WriteBatch& batch, Family family, std::string_view key) const {
  database_.check(batch.Delete(database_.handle(family), {key.data(), key.size()}));
}

void Store::erase_prefix(rocksdb::WriteBatch& batch, Family family, std::string_view prefix) const {
  const std::string end = prefix.empty() ? std::string("\xff") : keys::behind(prefix);
  database_.check(batch.DeleteRange(database_.handle(family), {prefix.data(), prefix.size()}, end));
}

void Store::put_progress(rocksdb::WriteBatch& batch, const JobId& id, const JobState& state) const {
  put(batch, Family::kJobs, keys::job_key(id, keys::JobPart::kState),
      codec::encode_progress(state));
}

void Store::flush() { database_.flush_all(); }

}  // namespace batchmill
