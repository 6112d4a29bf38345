// Uploads: lines in, the end of the upload.
#include <algorithm>
#include <stdexcept>

#include "storage/keys.h"
#include "storage/record_codec.h"
#include "storage/store.h"

namespace batchmill {

namespace {

// A line's record in a batch beside its bytes: key, head, lengths.
constexpr std::size_t kRecordBytes = 64;
// The batch's other records: upload and clock.
constexpr std::size_t kOtherBytes = 512;

std::size_t batch_bytes(std::span<const StoredLine> lines) {
  std::size_t bytes = kOtherBytes;
  for (const StoredLine& line : lines) bytes += line.bytes.size() + kRecordBytes;
  return bytes;
}

}  // namespace

bool Store::write_lines(const JobId& id, std::span<const StoredLine> lines,
                        std::uint64_t upload_offset_bytes, std::int64_t now_us) {
  const LiveJobPtr live = live_or_throw_unknown(id);
  if (live == nullptr) return false;
  const std::lock_guard upload_lock(live->upload_mutex);
  if (!live->upload.is_open) return false;
  JobState state;  // of it the upload's record
  state.total_lines = live->upload.total_lines;
  state.request_lines = live->upload.request_lines;
  state.upload_offset_bytes = live->upload.offset_bytes;
  rocksdb::WriteBatch batch(batch_bytes(lines));
  const std::int64_t queued_us = clock_us(now_us, batch);
  for (const StoredLine& line : lines) {
    if (line.line <= state.total_lines) continue;  // sent again
    if (line.first_line() > state.total_lines + 1) {
      throw std::invalid_argument("line " + std::to_string(line.first_line()) +
                                  " does not follow line " + std::to_string(state.total_lines));
    }
    if (line.num_lines > 1 && line.first_line() <= state.total_lines) {
      // Its first lines were sent before, in a shorter run.
      StoredLine rest = line;
      rest.num_lines = line.line - state.total_lines;
      put_line(batch, id, rest, queued_us);
    } else {
      put_line(batch, id, line, queued_us);
    }
    state.total_lines = line.line;
    if (!line.is_blank()) ++state.request_lines;
  }
  if (upload_offset_bytes <= state.upload_offset_bytes &&
      state.total_lines == live->upload.total_lines) {
    return true;
  }
  state.upload_offset_bytes = std::max(state.upload_offset_bytes, upload_offset_bytes);
  put(batch, Family::kJobs, keys::job_key(id, keys::JobPart::kUpload), codec::encode_upload(state));
  database_.write(batch, false, "write_lines");
  live->upload = {true, state.total_lines, state.request_lines, state.upload_offset_bytes};
  live->stored_lines = state.total_lines;
  return true;
}

void Store::put_line(rocksdb::WriteBatch& batch, const JobId& id, const StoredLine& line,
                     std::int64_t queued_us) const {
  const std::string key = keys::line_key({id, line.line});
  const std::string head = codec::encode_line_head(line, queued_us);
  const rocksdb::Slice key_part(key);
  // The bytes go into the batch without another copy of them.
  const rocksdb::Slice parts[] = {head, line.num_lines > 1 ? std::string_view() : line.bytes};
  database_.check(batch.Put(database_.handle(Family::kLines), rocksdb::SliceParts(&key_part, 1),
                            rocksdb::SliceParts(parts, std::size(parts))));
}

bool Store::seal(const JobId& id, const std::string& content_hash, std::int64_t now_s) {
  const LiveJobPtr live = live_or_throw_unknown(id);
  if (live == nullptr) return true;
  const std::lock_guard upload_lock(live->upload_mutex);
  const std::lock_guard lock(state_mutex_);
  if (!live->upload.is_open) return true;
  JobState state = live->state();
  rocksdb::WriteBatch batch;
  if (state.request_lines == 0) {
    for (Family family : {Family::kJobs, Family::kLines, Family::kIds, Family::kAttempts}) {
      erase_prefix(batch, family, keys::job_prefix(id));
    }
    const JobRequest& request = live->job.request;
    if (!request.idempotency_key.empty()) {
      erase(batch, Family::kMeta, keys::idempotency_key(request.owner, request.idempotency_key));
    }
    database_.write(batch, true, "seal_empty");
    // Who found the job before it went must not write a part of it again.
    live->upload.is_open = false;
    live->job.state.failed_at_s = std::max<std::int64_t>(now_s, 1);
    const std::unique_lock jobs_lock(jobs_mutex_);
    live_jobs_.erase(id);
    return false;
  }
  clock_s(now_s, batch);
  state.upload = UploadState::kSealed;
  state.content_hash = content_hash;
  put(batch, Family::kJobs, keys::job_key(id, keys::JobPart::kUpload), codec::encode_upload(state));
  database_.write(batch, true, "seal");
  live->upload.is_open = false;
  live->job.state = std::move(state);
  return true;
}

void Store::truncate(const JobId& id, const std::string& code, const std::string& message,
                     std::int64_t now_s) {
  const LiveJobPtr live = live_or_throw_unknown(id);
  if (live == nullptr) return;
  const std::lock_guard upload_lock(live->upload_mutex);
  const std::lock_guard lock(state_mutex_);
  if (!live->upload.is_open) return;
  JobState state = live->state();
  rocksdb::WriteBatch batch;
  clock_s(now_s, batch);
  state.upload = UploadState::kTruncated;
  state.end_code = code;
  state.end_message = message;
  state.errors.push_back({code, message, 0});
  put(batch, Family::kJobs, keys::job_key(id, keys::JobPart::kUpload), codec::encode_upload(state));
  put_progress(batch, id, state);
  database_.write(batch, true, "truncate");
  live->upload.is_open = false;
  live->job.state = std::move(state);
}

std::vector<StoredLine> Store::read_lines(const JobId& id, std::uint64_t first_line,
                                          std::size_t max_lines, std::size_t max_bytes) const {
  std::vector<StoredLine> lines;
  std::size_t num_bytes = 0;
  Database::Cursor cursor(database_, Family::kLines, keys::line_key({id, first_line}),
                          keys::behind(keys::job_prefix(id)));
  for (; lines.size() < max_lines && cursor.valid(); cursor.next()) {
    const auto key = keys::parse_line_key(cursor.key());
    if (!key) codec::throw_damaged({"lines", cursor.key()}, "no line key");
    num_bytes += cursor.value().size();
    if (!lines.empty() && num_bytes > max_bytes) break;
    lines.push_back(codec::decode_line({"lines", cursor.key()}, cursor.value(), key->line));
  }
  return lines;
}

std::optional<StoredLine> Store::line(const LineKey& key) const {
  const std::string bytes = keys::line_key(key);
  const auto value = database_.get(Family::kLines, bytes);
  if (!value) return std::nullopt;
  return codec::decode_line({"lines", bytes}, *value, key.line);
}

}  // namespace batchmill
