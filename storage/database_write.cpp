// The one place through which everything is written. A test that compiles this source itself, with
// BATCHMILL_FAIL_POINTS, gets a program that ends where the test says (fail_point.h).
#include "storage/database.h"
#include "storage/fail_point.h"
#include "storage/keys.h"
#include "storage/record_codec.h"

namespace batchmill {
namespace {

// Of a batch that was written. It begins with its first number, 8 bytes little-endian.
std::uint64_t last_sequence(const rocksdb::WriteBatch& batch) {
  std::uint64_t first = 0;
  for (std::size_t i = 8; i-- > 0;) {
    first = first << 8 | static_cast<unsigned char>(batch.Data()[i]);
  }
  return first + batch.Count() - 1;
}

}  // namespace

void Database::write(rocksdb::WriteBatch& batch, bool durable,
                     [[maybe_unused]] std::string_view what) {
  if (read_only_) {
    throw StorageError(StorageError::Kind::kIo, "the store is open for reading only");
  }
  BATCHMILL_FAIL_POINT(what, "before");
  // For who finds a hole in the log after a power cut.
  const rocksdb::Slice synced(keys::kSynced.data(), keys::kSynced.size());
  check(batch.Put(handle(Family::kMeta), synced, codec::encode_number(synced_sequence_)));
  rocksdb::WriteOptions options;
  options.sync = durable && sync_;
  std::shared_lock syncing(sync_mutex_, std::defer_lock);
  if (options.sync) {
    const std::lock_guard turn(sync_turn_mutex_);
    syncing.lock();
  }
  rocksdb::Status status = db_->Write(options, &batch);
  if (!status.ok()) {
    // After a failure RocksDB refuses writes until it is told to resume, which it does by writing
    // its memory to files and starting a new log: what failed is in neither, so trying once more
    // cannot apply it twice.
    const std::lock_guard lock(resume_mutex_);
    resume();
    status = db_->Write(options, &batch);
  }
  check_written(status);
  if (options.sync) note_synced(last_sequence(batch));
  BATCHMILL_FAIL_POINT(what, "after");
}

void Database::sync() {
  if (read_only_) return;
  BATCHMILL_FAIL_POINT("sync", "before");
  // What the system could not write it drops, and tells only whoever synced then: a log that has
  // failed is not asked again. RocksDB's memory holds all of it, and goes to files.
  const std::uint64_t before = db_->GetLatestSequenceNumber();
  const bool is_synced = !sync_ || sync_log();
  const std::lock_guard lock(resume_mutex_);
  if (!is_synced || (sync_ && has_failed())) {
    resume();
    flush_families();
  }
  if (sync_) note_synced(before);
  BATCHMILL_FAIL_POINT("sync", "after");
}

bool Database::sync_log() {
  std::unique_lock alone(sync_mutex_, std::defer_lock);
  const std::lock_guard turn(sync_turn_mutex_);
  alone.lock();
  if (has_failed() || !log_gate_->begin_sync()) return false;
  const bool is_synced = db_->SyncWAL().ok();
  log_gate_->end_sync();
  return is_synced;
}

void Database::check_written(const rocksdb::Status& status) {
  try {
    check(status);
  } catch (const StorageError& error) {
    if (!status.IsNoSpace()) {
      const std::lock_guard lock(lost_mutex_);
      if (why_lost_.empty()) why_lost_ = error.what();
    }
    throw;
  }
}

std::string Database::why_lost() const {
  const std::lock_guard lock(lost_mutex_);
  return why_lost_;
}

void Database::note_synced(std::uint64_t sequence) {
  std::uint64_t known = synced_sequence_;
  while (known < sequence && !synced_sequence_.compare_exchange_weak(known, sequence)) {
  }
}

void Database::resume() {
  const std::uint64_t num_errors = *num_errors_;  // what fails from now on is not dealt with
  check_written(db_->Resume());
  num_errors_dealt_with_ = num_errors;
}

}  // namespace batchmill
