// RocksDB's remarks, kept in two files of bounded size. Losing a remark is no failure: RocksDB's
// own logger aborts the process when it writes again after the disk was full.
#pragma once

#include <rocksdb/env.h>

#include <cstddef>
#include <mutex>
#include <string>

namespace batchmill {

// Owned by the database; any thread may write.
class InfoLog : public rocksdb::Logger {
 public:
  // Warnings and errors go to DIRECTORY/LOG, made with the first one; an empty directory keeps
  // none.
  explicit InfoLog(std::string directory);
  ~InfoLog() override;

  using rocksdb::Logger::Logv;
  void Logv(const char* format, std::va_list arguments) override;

  // The last remark about a log that is damaged, which names it; empty: there was none. RocksDB's
  // error does not.
  std::string damaged_log() const;

 private:
  bool open();

  std::string directory_;
  mutable std::mutex mutex_;
  std::string damaged_log_;
  int fd_ = -1;
  std::size_t size_bytes_ = 0;
};

}  // namespace batchmill
