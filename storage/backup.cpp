// Copies of a store, and a store out of a copy.
#include <fcntl.h>
#include <rocksdb/utilities/backup_engine.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <stdexcept>

#include "storage/store.h"

namespace batchmill {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail(const rocksdb::Status& status, const std::string& what) {
  using Kind = StorageError::Kind;
  Kind kind = Kind::kIo;
  if (status.IsCorruption()) kind = Kind::kDamaged;
  if (status.IsNoSpace() || status.ToString().find("No space left") != std::string::npos) {
    kind = Kind::kFull;
  }
  throw StorageError(kind, what + " (" + status.ToString() + ")");
}

// What BackupEngine leaves in a directory of its own.
bool is_backup(const fs::path& directory) {
  std::error_code error;
  return fs::is_directory(directory / "meta", error) &&
         fs::is_directory(directory / "private", error);
}

rocksdb::BackupEngineOptions engine_options(const std::string& directory) {
  rocksdb::BackupEngineOptions options(directory);
  options.share_table_files = true;
  options.share_files_with_checksum = true;
  options.sync = true;
  options.max_background_operations = 1;
  options.callback_trigger_interval_size = 1 << 20;
  return options;
}

std::uint64_t bytes_below(const fs::path& directory) {
  std::uint64_t bytes = 0;
  std::error_code error;
  for (fs::recursive_directory_iterator it(directory, error), end; !error && it != end;
       it.increment(error)) {
    std::error_code of_file;
    const std::uint64_t size = it->is_regular_file(of_file) ? it->file_size(of_file) : 0;
    if (!of_file) bytes += size;
  }
  return bytes;
}

void sync_path(const fs::path& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  const bool is_synced = fd >= 0 && ::fsync(fd) == 0;
  const int error = errno;
  if (fd >= 0) ::close(fd);
  if (is_synced) return;
  throw StorageError(error == ENOSPC ? StorageError::Kind::kFull : StorageError::Kind::kIo,
                     "cannot sync " + path.string() + ": " + std::strerror(error));
}

void remove_all(const fs::path& directory) {
  std::error_code error;
  fs::remove_all(directory, error);
  if (!error) return;
  throw StorageError(StorageError::Kind::kIo,
                     "cannot remove " + directory.string() + ": " + error.message());
}

// The first file that a backup's lists name and that is not there; empty: there is none.
std::string missing_file(const fs::path& backup) {
  std::error_code error;
  for (fs::directory_iterator it(backup / "meta", error), end; !error && it != end;
       it.increment(error)) {
    std::ifstream list(it->path());
    for (std::string line; std::getline(list, line);) {
      const std::string name = line.substr(0, line.find(' '));
      if (name.find('/') == std::string::npos) continue;  // the list's head
      std::error_code of_file;
      if (!fs::exists(backup / name, of_file)) return name;
    }
  }
  return {};
}

// The engine's threads are gone when this returns or throws.
void copy_newest(const std::string& backup_directory, const std::string& to,
                 const std::string& what) {
  rocksdb::BackupEngineReadOnly* opened = nullptr;
  rocksdb::Status status = rocksdb::BackupEngineReadOnly::Open(engine_options(backup_directory),
                                                               rocksdb::Env::Default(), &opened);
  const std::unique_ptr<rocksdb::BackupEngineReadOnly> engine(opened);
  if (!status.ok()) fail(status, what);
  rocksdb::BackupInfo info;
  status = engine->GetLatestBackupInfo(&info);
  if (status.IsNotFound()) {
    const std::string missing = missing_file(backup_directory);
    fail(rocksdb::Status::Corruption(missing.empty() ? "no backup in it is whole"
                                                     : missing + " is missing"),
         what);
  }
  if (status.ok()) status = engine->VerifyBackup(info.backup_id);  // sizes
  if (status.ok()) status = engine->RestoreDBFromBackup(info.backup_id, to, to);
  // Restoring tells that a checksum is wrong, this one also whose.
  if (status.IsCorruption()) {
    const rocksdb::Status named = engine->VerifyBackup(info.backup_id, true);
    if (!named.ok()) status = named;
  }
  if (!status.ok()) fail(status, what);
}

}  // namespace

StoreCare::BackupReport Store::backup(const std::string& directory, const std::atomic<bool>& stop) {
  std::error_code error;
  const bool has_one = is_backup(directory);
  if (fs::exists(directory, error) && !has_one &&
      !(fs::is_directory(directory, error) && fs::is_empty(directory, error))) {
    throw std::invalid_argument(directory + " is neither empty nor a backup");
  }
  if (!has_one) fs::create_directories(directory, error);
  if (error) {
    throw StorageError(StorageError::Kind::kIo,
                       "cannot write the backup " + directory + ": " + error.message());
  }
  const std::string what = "the backup to " + directory + " failed, what was there stays";
  if (stop) fail(rocksdb::Status::Incomplete("stopped"), what);
  rocksdb::BackupEngine* opened = nullptr;
  rocksdb::Status status =
      rocksdb::BackupEngine::Open(engine_options(directory), database_.db().GetEnv(), &opened);
  if (!status.ok()) fail(status, what);
  const std::unique_ptr<rocksdb::BackupEngine> engine(opened);
  const std::uint64_t bytes_before = bytes_below(directory);
  rocksdb::CreateBackupOptions options;
  // Then the logs are short, and the next backup finds this one's tables again.
  options.flush_before_backup = true;
  options.progress_callback = [&] {
    if (stop) engine->StopBackup();
  };
  rocksdb::BackupID number = 0;
  status = engine->CreateNewBackup(options, &database_.db(), &number);
  if (!status.ok()) fail(status, what);
  const std::uint64_t bytes_copied = bytes_below(directory) - bytes_before;
  // The new one is whole and synced: now the others may go.
  status = engine->PurgeOldBackups(1);
  if (!status.ok()) fail(status, "the backup to " + directory + " is made, an older one stays");
  rocksdb::BackupInfo info;
  status = engine->GetBackupInfo(number, &info);
  if (!status.ok()) fail(status, what);
  return {info.size, bytes_copied};
}

std::string restoring_directory(const std::string& store_directory) {
  return store_directory + ".restoring";
}

StoreCare::CheckReport restore_backup(const std::string& backup_directory,
                                      const std::string& store_directory) {
  if (!is_backup(backup_directory)) {
    throw StorageError(StorageError::Kind::kMissing, "there is no backup in " + backup_directory);
  }
  std::error_code error;
  if (fs::exists(store_directory, error)) {
    throw StorageError(StorageError::Kind::kIo, "there is a store in " + store_directory);
  }
  rocksdb::BackupEngineReadOnly* opened = nullptr;
  const std::string what = "the backup in " + backup_directory + " cannot be restored";
  rocksdb::Status status = rocksdb::BackupEngineReadOnly::Open(engine_options(backup_directory),
                                                               rocksdb::Env::Default(), &opened);
  if (!status.ok()) fail(status, what);
  const std::unique_ptr<rocksdb::BackupEngineReadOnly> engine(opened);
  const std::string work = restoring_directory(store_directory);
  remove_all(work);
  StoreCare::CheckReport report;
  try {
    copy_newest(backup_directory, work, what);
    report = JobStore::open(work, {}, JobStore::Mode::kReadOnly)->check();
    if (!report.problems.empty()) {
      throw StorageError(StorageError::Kind::kDamaged, what + ": " + report.problems.front());
    }
  } catch (const StorageError&) {
    remove_all(work);
    throw;
  }
  for (const auto& file : fs::directory_iterator(work)) {
    if (file.is_regular_file()) sync_path(file.path());
  }
  sync_path(work);
  fs::rename(work, store_directory, error);
  if (error) {
    throw StorageError(StorageError::Kind::kIo,
                       "cannot name the store " + store_directory + ": " + error.message());
  }
  sync_path(fs::path(store_directory).parent_path());
  return report;
}

}  // namespace batchmill
