#include "storage/store_files.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

namespace batchmill {
namespace {

namespace fs = std::filesystem;

using rocksdb::IODebugContext;
using rocksdb::IOOptions;
using rocksdb::IOStatus;

// RocksDB goes on after "no space" when there is some, and after no other failure of a write. It
// knows only ENOSPC for that, and gives of others their text alone.
IOStatus with_one_name_for_full(IOStatus status) {
  if (status.ok() || !status.IsIOError() || status.IsNoSpace()) return status;
  const std::string text = status.ToString();
  for (const int error : {EFBIG, EDQUOT}) {
    if (text.find(std::strerror(error)) == std::string::npos) continue;
    IOStatus full = IOStatus::NoSpace(text);
    full.SetRetryable(true);
    return full;
  }
  return status;
}

class StoreFile : public rocksdb::FSWritableFileOwnerWrapper {
 public:
  StoreFile(std::unique_ptr<rocksdb::FSWritableFile> file, std::shared_ptr<LogGate> log_gate)
      : FSWritableFileOwnerWrapper(std::move(file)), log_gate_(std::move(log_gate)) {}

  IOStatus Append(const rocksdb::Slice& data, const IOOptions& options,
                  IODebugContext* context) override {
    return written(FSWritableFileOwnerWrapper::Append(data, options, context));
  }
  IOStatus Append(const rocksdb::Slice& data, const IOOptions& options,
                  const rocksdb::DataVerificationInfo& verification,
                  IODebugContext* context) override {
    return written(FSWritableFileOwnerWrapper::Append(data, options, verification, context));
  }
  IOStatus PositionedAppend(const rocksdb::Slice& data, std::uint64_t offset,
                            const IOOptions& options, IODebugContext* context) override {
    return written(FSWritableFileOwnerWrapper::PositionedAppend(data, offset, options, context));
  }
  IOStatus PositionedAppend(const rocksdb::Slice& data, std::uint64_t offset,
                            const IOOptions& options,
                            const rocksdb::DataVerificationInfo& verification,
                            IODebugContext* context) override {
    return written(
        FSWritableFileOwnerWrapper::PositionedAppend(data, offset, options, verification, context));
  }
  IOStatus Flush(const IOOptions& options, IODebugContext* context) override {
    return written(FSWritableFileOwnerWrapper::Flush(options, context));
  }
  IOStatus Sync(const IOOptions& options, IODebugContext* context) override {
    return with_one_name_for_full(FSWritableFileOwnerWrapper::Sync(options, context));
  }
  IOStatus Fsync(const IOOptions& options, IODebugContext* context) override {
    return with_one_name_for_full(FSWritableFileOwnerWrapper::Fsync(options, context));
  }
  IOStatus Close(const IOOptions& options, IODebugContext* context) override {
    return with_one_name_for_full(FSWritableFileOwnerWrapper::Close(options, context));
  }

 private:
  IOStatus written(IOStatus status) const {
    if (!status.ok() && log_gate_ != nullptr) log_gate_->note_failure();
    return with_one_name_for_full(std::move(status));
  }

  const std::shared_ptr<LogGate> log_gate_;  // null: no log
};

}  // namespace

bool LogGate::begin_sync() {
  const std::lock_guard lock(mutex_);
  if (has_failed_) return false;
  ++num_syncs_;
  return true;
}

void LogGate::end_sync() {
  const std::lock_guard lock(mutex_);
  if (--num_syncs_ == 0) idle_.notify_all();
}

void LogGate::note_failure() {
  std::unique_lock lock(mutex_);
  has_failed_ = true;
  idle_.wait(lock, [this] { return num_syncs_ == 0; });
}

void LogGate::note_new_log() {
  const std::lock_guard lock(mutex_);
  has_failed_ = false;
}

StoreFiles::StoreFiles(std::shared_ptr<rocksdb::FileSystem> target, const std::string& directory,
                       std::shared_ptr<LogGate> gate)
    : FileSystemWrapper(std::move(target)),
      directory_((fs::path(directory) / "").lexically_normal().parent_path().string()),
      gate_(std::move(gate)) {}

IOStatus StoreFiles::wrap(const std::string& path, IOStatus status,
                          std::unique_ptr<rocksdb::FSWritableFile>* file) const {
  if (!status.ok()) return with_one_name_for_full(std::move(status));
  const fs::path normal = fs::path(path).lexically_normal();
  const bool is_log = normal.extension() == ".log" && normal.parent_path() == directory_;
  if (is_log) gate_->note_new_log();
  *file = std::make_unique<StoreFile>(std::move(*file), is_log ? gate_ : nullptr);
  return status;
}

IOStatus StoreFiles::NewWritableFile(const std::string& path, const rocksdb::FileOptions& options,
                                     std::unique_ptr<rocksdb::FSWritableFile>* result,
                                     IODebugContext* context) {
  return wrap(path, FileSystemWrapper::NewWritableFile(path, options, result, context), result);
}

IOStatus StoreFiles::ReopenWritableFile(const std::string& path,
                                        const rocksdb::FileOptions& options,
                                        std::unique_ptr<rocksdb::FSWritableFile>* result,
                                        IODebugContext* context) {
  return wrap(path, FileSystemWrapper::ReopenWritableFile(path, options, result, context), result);
}

IOStatus StoreFiles::ReuseWritableFile(const std::string& path, const std::string& old_path,
                                       const rocksdb::FileOptions& options,
                                       std::unique_ptr<rocksdb::FSWritableFile>* result,
                                       IODebugContext* context) {
  return wrap(path, FileSystemWrapper::ReuseWritableFile(path, old_path, options, result, context),
              result);
}

}  // namespace batchmill
