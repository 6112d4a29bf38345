// The file system under the database. It keeps RocksDB from asserting where a log cannot be
// written, and calls every limit on space (a full disk, a quota, a file's greatest size) by one
// name. Owned by the database's environment; any thread.
#pragma once

#include <rocksdb/file_system.h>

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>

namespace batchmill {

// RocksDB aborts when it syncs a log whose last write failed. So a write that failed is told only
// when no sync is under way, and from then on none begins until RocksDB has started a new log.
class LogGate {
 public:
  // False: a log has failed, and must not be synced.
  bool begin_sync();
  void end_sync();
  // A write to a log has failed. Waits for syncs; these wait for no write (Database::write).
  void note_failure();
  void note_new_log();

 private:
  std::mutex mutex_;
  std::condition_variable idle_;
  int num_syncs_ = 0;
  bool has_failed_ = false;
};

class StoreFiles : public rocksdb::FileSystemWrapper {
 public:
  // `directory`: the database's; its logs go through the gate.
  StoreFiles(std::shared_ptr<rocksdb::FileSystem> target, const std::string& directory,
             std::shared_ptr<LogGate> gate);
  const char* Name() const override { return "batchmill.StoreFiles"; }

  rocksdb::IOStatus NewWritableFile(const std::string& path, const rocksdb::FileOptions& options,
                                    std::unique_ptr<rocksdb::FSWritableFile>* result,
                                    rocksdb::IODebugContext* context) override;
  rocksdb::IOStatus ReopenWritableFile(const std::string& path, const rocksdb::FileOptions& options,
                                       std::unique_ptr<rocksdb::FSWritableFile>* result,
                                       rocksdb::IODebugContext* context) override;
  rocksdb::IOStatus ReuseWritableFile(const std::string& path, const std::string& old_path,
                                      const rocksdb::FileOptions& options,
                                      std::unique_ptr<rocksdb::FSWritableFile>* result,
                                      rocksdb::IODebugContext* context) override;

 private:
  rocksdb::IOStatus wrap(const std::string& path, rocksdb::IOStatus status,
                         std::unique_ptr<rocksdb::FSWritableFile>* file) const;

  const std::string directory_;  // normal, without a slash at the end
  const std::shared_ptr<LogGate> gate_;
};

}  // namespace batchmill
