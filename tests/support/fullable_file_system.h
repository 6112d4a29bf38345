// A disk that is full whenever a test says so, under a store opened with
// rocksdb::NewCompositeEnv(file system).
#pragma once

#include <rocksdb/env.h>
#include <rocksdb/file_system.h>

#include <atomic>
#include <memory>
#include <string>
#include <utility>

namespace batchmill::testing {

class FullableFile : public rocksdb::FSWritableFileOwnerWrapper {
 public:
  FullableFile(std::unique_ptr<rocksdb::FSWritableFile> file, const std::atomic<bool>& is_full)
      : FSWritableFileOwnerWrapper(std::move(file)), is_full_(is_full) {}

  using FSWritableFileOwnerWrapper::Append;
  rocksdb::IOStatus Append(const rocksdb::Slice& data, const rocksdb::IOOptions& options,
                           rocksdb::IODebugContext* context) override {
    if (is_full_) return rocksdb::IOStatus::NoSpace("the test's disk");
    return FSWritableFileOwnerWrapper::Append(data, options, context);
  }

 private:
  const std::atomic<bool>& is_full_;
};

class FullableFileSystem : public rocksdb::FileSystemWrapper {
 public:
  FullableFileSystem() : FileSystemWrapper(rocksdb::FileSystem::Default()) {}
  const char* Name() const override { return "FullableFileSystem"; }
  rocksdb::IOStatus NewWritableFile(const std::string& name, const rocksdb::FileOptions& options,
                                    std::unique_ptr<rocksdb::FSWritableFile>* result,
                                    rocksdb::IODebugContext* context) override {
    std::unique_ptr<rocksdb::FSWritableFile> file;
    const rocksdb::IOStatus status =
        FileSystemWrapper::NewWritableFile(name, options, &file, context);
    if (status.ok()) *result = std::make_unique<FullableFile>(std::move(file), is_full);
    return status;
  }
  std::atomic<bool> is_full{false};
};

}  // namespace batchmill::testing
