// The one place through which everything is written. A test that compiles this source itself, with
// BATCHMILL_FAIL_POINTS, gets a program that ends where the test says (fail_point.h).
#include "storage/database.h"
#include "storage/fail_point.h"

namespace batchmill {

void Database::write(rocksdb::WriteBatch& batch, bool durable,
                     [[maybe_unused]] std::string_view what) {
  if (read_only_) {
    throw StorageError(StorageError::Kind::kIo, "the store is open for reading only");
  }
  BATCHMILL_FAIL_POINT(what, "before");
  rocksdb::WriteOptions options;
  options.sync = durable && sync_;
  rocksdb::Status status = db_->Write(options, &batch);
  if (!status.ok()) {
    // After a failure RocksDB refuses writes until it is told to resume, which it does by writing
    // its memory to files and starting a new log: what failed is in neither, so trying once more
    // cannot apply it twice.
    const std::lock_guard lock(resume_mutex_);
    resume();
    status = db_->Write(options, &batch);
  }
  check(status);
  BATCHMILL_FAIL_POINT(what, "after");
}

void Database::sync() {
  if (read_only_) return;
  BATCHMILL_FAIL_POINT("sync", "before");
  // What the system could not write it drops, and tells only whoever synced then: a log that has
  // failed is not asked again. RocksDB's memory holds all of it, and goes to files.
  const bool is_synced = !sync_ || (!has_failed() && db_->SyncWAL().ok());
  const std::lock_guard lock(resume_mutex_);
  if (!is_synced || (sync_ && has_failed())) {
    resume();
    flush_families();
  }
  BATCHMILL_FAIL_POINT("sync", "after");
}

void Database::resume() {
  const std::uint64_t num_errors = *num_errors_;  // what fails from now on is not dealt with
  check(db_->Resume());
  num_errors_dealt_with_ = num_errors;
}

}  // namespace batchmill
