// A disk that is full or broken whenever a test says so, under a store opened with
// rocksdb::NewCompositeEnv(file system).
#pragma once

#include <rocksdb/env.h>
#include <rocksdb/file_system.h>

#include <atomic>
#include <memory>
#include <string>
#include <utility>

namespace batchmill::testing {

struct DiskState {
  std::atomic<bool> is_full{false};
  // Every write fails so: a text of the system's, as of EIO or EFBIG. Set before `is_broken`.
  std::string trouble;
  std::atomic<bool> is_broken{false};
};

class FullableFile : public rocksdb::FSWritableFileOwnerWrapper {
 public:
  FullableFile(std::unique_ptr<rocksdb::FSWritableFile> file, const DiskState& state)
      : FSWritableFileOwnerWrapper(std::move(file)), state_(state) {}

  using FSWritableFileOwnerWrapper::Append;
  rocksdb::IOStatus Append(const rocksdb::Slice& data, const rocksdb::IOOptions& options,
                           rocksdb::IODebugContext* context) override {
    if (state_.is_full) return rocksdb::IOStatus::NoSpace("the test's disk");
    if (state_.is_broken) return rocksdb::IOStatus::IOError("the test's disk", state_.trouble);
    return FSWritableFileOwnerWrapper::Append(data, options, context);
  }

 private:
  const DiskState& state_;
};

class FullableFileSystem : public rocksdb::FileSystemWrapper, public DiskState {
 public:
  FullableFileSystem() : FileSystemWrapper(rocksdb::FileSystem::Default()) {}
  const char* Name() const override { return "FullableFileSystem"; }
  rocksdb::IOStatus NewWritableFile(const std::string& name, const rocksdb::FileOptions& options,
                                    std::unique_ptr<rocksdb::FSWritableFile>* result,
                                    rocksdb::IODebugContext* context) override {
    std::unique_ptr<rocksdb::FSWritableFile> file;
    const rocksdb::IOStatus status =
        FileSystemWrapper::NewWritableFile(name, options, &file, context);
    if (status.ok()) *result = std::make_unique<FullableFile>(std::move(file), *this);
    return status;
  }
};

}  // namespace batchmill::testing
