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
    check(db_->Resume());
    status = db_->Write(options, &batch);
  }
  check(status);
  BATCHMILL_FAIL_POINT(what, "after");
}

}  // namespace batchmill
