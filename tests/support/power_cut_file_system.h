// A disk that a power cut catches with what was not synced still in memory, under a store opened
// with rocksdb::NewCompositeEnv(file system). Any thread.
#pragma once

#include <rocksdb/env.h>
#include <rocksdb/file_system.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <utility>

namespace batchmill::testing {

class PowerCutFileSystem : public rocksdb::FileSystemWrapper {
 public:
  using IOStatus = rocksdb::IOStatus;
  using IOOptions = rocksdb::IOOptions;
  using Context = rocksdb::IODebugContext;

  PowerCutFileSystem() : FileSystemWrapper(rocksdb::FileSystem::Default()) {}
  const char* Name() const override { return "PowerCutFileSystem"; }

  // Writes to `image` what a cut at this moment would leave of the directory: of each file whose
  // name was made durable by a sync of the directory, the bytes that were synced. With `seed` also
  // some of the pages behind them: the disk got them in an order of its own, and in the place of
  // those it did not get are zeros.
  void cut(const std::string& directory, const std::string& image,
           std::optional<unsigned> seed = std::nullopt) {
    const std::lock_guard lock(mutex_);
    std::filesystem::create_directories(image);
    for (const auto& [path, file] : durable_names_) {
      const std::filesystem::path from(path);
      if (from.parent_path() != std::filesystem::path(directory)) continue;
      std::string bytes = file->kept;
      if (!file->is_kept) {
        std::ifstream in(file->path, std::ios::binary);
        bytes.assign(std::istreambuf_iterator<char>(in), {});
        const std::size_t synced = std::min<std::size_t>(bytes.size(), file->synced_bytes);
        if (seed && !file->has_gap) {
          drop_pages(&bytes, synced, *seed + static_cast<unsigned>(bytes.size()));
        } else {
          bytes.resize(synced);
        }
      }
      std::ofstream(image + "/" + from.filename().string(), std::ios::binary) << bytes;
      lost_bytes_ += file->is_kept ? 0 : file->appended_bytes - file->synced_bytes;
    }
  }
  // A disk that fails: syncs do too, and as real systems do it drops what it could not write and
  // says so once.
  std::atomic<bool> fails_syncs{false};
  // How much cuts have taken away so far.
  std::uint64_t lost_bytes() const {
    const std::lock_guard lock(mutex_);
    return lost_bytes_;
  }

  IOStatus NewWritableFile(const std::string& path, const rocksdb::FileOptions& options,
                           std::unique_ptr<rocksdb::FSWritableFile>* result,
                           Context* context) override {
    std::unique_ptr<rocksdb::FSWritableFile> file;
    const IOStatus status = FileSystemWrapper::NewWritableFile(path, options, &file, context);
    if (!status.ok()) return status;
    const std::lock_guard lock(mutex_);
    auto state = std::make_shared<FileState>();
    state->path = path;
    keep_old(path);
    names_[path] = state;
    *result = std::make_unique<File>(std::move(file), std::move(state), this);
    return status;
  }

  IOStatus RenameFile(const std::string& from, const std::string& to, const IOOptions& options,
                      Context* context) override {
    const std::lock_guard lock(mutex_);
    keep_old(to);
    const IOStatus status = FileSystemWrapper::RenameFile(from, to, options, context);
    const auto it = names_.find(from);
    if (!status.ok() || it == names_.end()) return status;
    it->second->path = to;
    names_[to] = it->second;
    names_.erase(from);
    return status;
  }

  // Durable at once: the worst that a cut could make of it is a file that nobody misses.
  IOStatus DeleteFile(const std::string& path, const IOOptions& options,
                      Context* context) override {
    const std::lock_guard lock(mutex_);
    names_.erase(path);
    durable_names_.erase(path);
    return FileSystemWrapper::DeleteFile(path, options, context);
  }

  IOStatus NewDirectory(const std::string& path, const IOOptions& options,
                        std::unique_ptr<rocksdb::FSDirectory>* result, Context* context) override {
    std::unique_ptr<rocksdb::FSDirectory> directory;
    const IOStatus status = FileSystemWrapper::NewDirectory(path, options, &directory, context);
    if (status.ok()) *result = std::make_unique<Directory>(std::move(directory), path, this);
    return status;
  }

 private:
  struct FileState {
    std::string path;
    std::uint64_t appended_bytes = 0;
    std::uint64_t synced_bytes = 0;
    bool has_gap = false;  // what was dropped: no sync makes more of the file durable
    // A durable name whose file was replaced by one that is not durable yet.
    bool is_kept = false;
    std::string kept;
  };
  using FileStatePtr = std::shared_ptr<FileState>;

  class File : public rocksdb::FSWritableFileOwnerWrapper {
   public:
    File(std::unique_ptr<rocksdb::FSWritableFile> file, FileStatePtr state,
         PowerCutFileSystem* disk)
        : FSWritableFileOwnerWrapper(std::move(file)), state_(std::move(state)), disk_(disk) {}

    IOStatus Append(const rocksdb::Slice& data, const IOOptions& options,
                    Context* context) override {
      return count(FSWritableFileOwnerWrapper::Append(data, options, context), data.size());
    }
    IOStatus Append(const rocksdb::Slice& data, const IOOptions& options,
                    const rocksdb::DataVerificationInfo& /*info*/, Context* context) override {
      return Append(data, options, context);
    }
    IOStatus Sync(const IOOptions& options, Context* context) override {
      return synced(FSWritableFileOwnerWrapper::Sync(options, context));
    }
    IOStatus Fsync(const IOOptions& options, Context* context) override {
      return synced(FSWritableFileOwnerWrapper::Fsync(options, context));
    }

   private:
    IOStatus count(IOStatus status, std::uint64_t bytes) {
      const std::lock_guard lock(disk_->mutex_);
      if (status.ok()) state_->appended_bytes += bytes;
      return status;
    }
    IOStatus synced(IOStatus status) {
      const std::lock_guard lock(disk_->mutex_);
      if (disk_->fails_syncs) {
        state_->has_gap = state_->has_gap || state_->synced_bytes < state_->appended_bytes;
        return IOStatus::NoSpace("the test's disk");
      }
      if (status.ok() && !state_->has_gap) state_->synced_bytes = state_->appended_bytes;
      return status;
    }
    const FileStatePtr state_;
    PowerCutFileSystem* const disk_;
  };

  class Directory : public rocksdb::FSDirectoryWrapper {
   public:
    Directory(std::unique_ptr<rocksdb::FSDirectory> directory, std::string path,
              PowerCutFileSystem* disk)
        : FSDirectoryWrapper(std::move(directory)), path_(std::move(path)), disk_(disk) {}
    IOStatus Fsync(const IOOptions& options, Context* context) override {
      disk_->sync_names(path_);
      return FSDirectoryWrapper::Fsync(options, context);
    }
    IOStatus FsyncWithDirOptions(const IOOptions& options, Context* context,
                                 const rocksdb::DirFsyncOptions& how) override {
      disk_->sync_names(path_);
      return FSDirectoryWrapper::FsyncWithDirOptions(options, context, how);
    }

   private:
    const std::string path_;
    PowerCutFileSystem* const disk_;
  };

  static void drop_pages(std::string* bytes, std::size_t synced, unsigned seed) {
    constexpr std::size_t kPageBytes = 4096;
    std::mt19937 random(seed);
    const auto kept_of_8 = static_cast<unsigned>(random() % 9);
    std::size_t end = synced;
    for (std::size_t page = synced / kPageBytes * kPageBytes; page < bytes->size();
         page += kPageBytes) {
      const std::size_t from = std::max(page, synced);
      const std::size_t to = std::min(page + kPageBytes, bytes->size());
      if (random() % 8 < kept_of_8) {
        end = to;
      } else {
        std::fill(bytes->begin() + static_cast<std::ptrdiff_t>(from),
                  bytes->begin() + static_cast<std::ptrdiff_t>(to), '\0');
      }
    }
    // The length is written by itself: it may be that of any moment since the sync.
    if (random() % 2 == 0) bytes->resize(end);
  }

  // The file of a durable name is about to be replaced.
  void keep_old(const std::string& path) {
    const auto it = durable_names_.find(path);
    if (it == durable_names_.end() || it->second->is_kept) return;
    auto old = std::make_shared<FileState>(*it->second);
    std::ifstream in(path, std::ios::binary);
    old->kept.assign(std::istreambuf_iterator<char>(in), {});
    old->kept.resize(std::min<std::size_t>(old->kept.size(), old->synced_bytes));
    old->is_kept = true;
    it->second = std::move(old);
  }

  void sync_names(const std::string& directory) {
    const std::lock_guard lock(mutex_);
    for (const auto& [path, file] : names_) {
      if (std::filesystem::path(path).parent_path() == std::filesystem::path(directory)) {
        durable_names_[path] = file;
      }
    }
  }

  mutable std::mutex mutex_;
  std::map<std::string, FileStatePtr> names_;
  std::map<std::string, FileStatePtr> durable_names_;
  std::uint64_t lost_bytes_ = 0;
};

}  // namespace batchmill::testing
