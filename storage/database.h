// The RocksDB database under the store: column families, options, reading and writing with errors
// turned into StorageError. Owned by the store; any thread may call it.
#pragma once

#include <rocksdb/cache.h>
#include <rocksdb/db.h>
#include <rocksdb/wal_filter.h>
#include <rocksdb/write_batch.h>

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <string>
#include <string_view>
#include <vector>

#include "storage/error.h"
#include "storage/info_log.h"
#include "storage/options.h"
#include "storage/store_files.h"

namespace batchmill {

enum class Family : std::uint8_t {
  kMeta,
  kJobs,
  kLines,
  kIds,
  kPlan,
  kPrompts,
  kAttempts,
  kResults,
  kDone,
  kLedger,
};
inline constexpr std::size_t kNumFamilies = 10;
std::string_view family_name(Family family);

class Database {
 public:
  // How damage inside a log is met: it is an error, or the store opens as it was before it. What a
  // power cut makes of what was not synced is no damage: the store opens as it was before the first
  // of it that is missing.
  enum class DamagedLog { kRefuse, kReadUpToDamage };
  // Opens or, when writing, creates. `env` may replace the file system in tests; null: the real
  // one.
  Database(const std::string& directory, const StorageOptions& options, bool read_only,
           rocksdb::Env* env, DamagedLog damaged_log = DamagedLog::kRefuse);
  ~Database();
  Database(const Database&) = delete;
  Database& operator=(const Database&) = delete;

  bool read_only() const { return read_only_; }
  rocksdb::ColumnFamilyHandle* handle(Family family) const {
    return handles_[static_cast<std::size_t>(family)];
  }

  std::optional<std::string> get(Family family, std::string_view key,
                                 const rocksdb::Snapshot* snapshot = nullptr) const;
  // The values of many keys, in their order; dearer the farther the keys are from being sorted.
  std::vector<std::optional<std::string>> get_many(Family family,
                                                   const std::vector<std::string>& keys,
                                                   const rocksdb::Snapshot* snapshot) const;
  // All or nothing. With `durable` (and the option sync) it returns after the log is on the disk;
  // callers on several threads share one sync. A failed write lets RocksDB resume and tries once
  // more, so writing goes on as soon as there is space. `what` names the write for fail points.
  void write(rocksdb::WriteBatch& batch, bool durable, std::string_view what = {});
  // With the option sync: all that was written before is on the disk when it returns. Others write
  // meanwhile; a write that is durable itself waits for the disk in the way of the next one.
  void sync();
  // Why nothing can be written any more, whatever space there is, until the database is opened
  // anew; "" while something can.
  std::string why_lost() const;

  // Entries of begin ≤ key < end (empty: no end).
  class Cursor {
   public:
    Cursor(const Database& database, Family family, std::string_view begin, std::string_view end,
           const rocksdb::Snapshot* snapshot = nullptr, bool reverse = false);
    Cursor(const Cursor&) = delete;  // the iterator points at the bounds
    Cursor& operator=(const Cursor&) = delete;
    bool valid();  // throws StorageError when reading failed
    void next() { iterator_->Next(); }
    void previous() { iterator_->Prev(); }
    std::string_view key() const { return {iterator_->key().data(), iterator_->key().size()}; }
    std::string_view value() const {
      return {iterator_->value().data(), iterator_->value().size()};
    }
    // Forward to the first key ≥ `target`.
    void seek(std::string_view target);

   private:
    const Database& database_;
    std::string lower_;
    std::string upper_;
    rocksdb::Slice lower_slice_;
    rocksdb::Slice upper_slice_;
    std::unique_ptr<rocksdb::Iterator> iterator_;
  };

  std::uint64_t approximate_bytes(Family family, std::string_view begin,
                                  std::string_view end) const;
  // Drops all that the family holds without reading it, whole or not. Nothing else may use the
  // database meanwhile. After a crash in it the family is what it was, or empty.
  void clear(Family family);
  // Writes the family's memory to files, so that its deletions can be compacted away.
  void flush(Family family, bool wait);
  void flush_all();
  // Throws unless the status is good.
  void check(const rocksdb::Status& status) const;

  rocksdb::DB& db() const { return *db_; }

 private:
  [[noreturn]] void fail(const rocksdb::Status& status, bool opening) const;
  // All up to this sequence number is on the disk.
  void note_synced(std::uint64_t sequence);
  // Lets RocksDB go on after an error. Under resume_mutex_.
  void resume();
  // The log alone; false: it has failed, now or before.
  bool sync_log();
  // After all was tried.
  void check_written(const rocksdb::Status& status);
  // An error has not been dealt with by that.
  bool has_failed() const { return *num_errors_ != num_errors_dealt_with_; }
  void flush_families();

  std::string directory_;
  StorageOptions options_;
  std::shared_ptr<rocksdb::Cache> cache_;
  std::shared_ptr<InfoLog> info_log_;
  bool read_only_;
  bool sync_;
  const std::shared_ptr<LogGate> log_gate_ = std::make_shared<LogGate>();
  std::unique_ptr<rocksdb::Env> env_;
  std::unique_ptr<rocksdb::WalFilter> log_filter_;  // RocksDB's options keep pointing to it
  std::unique_ptr<rocksdb::DB> db_;
  std::array<rocksdb::ColumnFamilyHandle*, kNumFamilies> handles_{};
  std::atomic<std::uint64_t> synced_sequence_ = 0;  // up to it all is on the disk
  // Durable writes share it, a sync of the log has it alone: RocksDB lets each wait for the other
  // anyway, but a write that fails must not wait for a sync that waits for it (LogGate).
  std::shared_mutex sync_mutex_;
  std::mutex sync_turn_mutex_;  // a sync that waits for the above is not passed
  std::mutex resume_mutex_;
  mutable std::mutex lost_mutex_;
  std::string why_lost_;  // under lost_mutex_
  // That RocksDB has met.
  const std::shared_ptr<std::atomic<std::uint64_t>> num_errors_ =
      std::make_shared<std::atomic<std::uint64_t>>(0);
  std::atomic<std::uint64_t> num_errors_dealt_with_ = 0;  // written under resume_mutex_
};

// Frees a snapshot at the end of a scope.
class SnapshotGuard {
 public:
  explicit SnapshotGuard(const Database& database)
      : database_(database), snapshot_(database.db().GetSnapshot()) {}
  ~SnapshotGuard() { database_.db().ReleaseSnapshot(snapshot_); }
  SnapshotGuard(const SnapshotGuard&) = delete;
  SnapshotGuard& operator=(const SnapshotGuard&) = delete;
  const rocksdb::Snapshot* get() const { return snapshot_; }

 private:
  const Database& database_;
  const rocksdb::Snapshot* snapshot_;
};

}  // namespace batchmill
