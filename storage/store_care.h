// The store as a whole: copies of it, its space, its age, and what can be computed again. Part of
// JobStore, for who looks after a store and does not work with its jobs. Thread-safe unless said
// otherwise; calls block. Throws StorageError on failure.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "storage/error.h"

namespace batchmill {

class StoreCare {
 public:
  virtual ~StoreCare() = default;

  virtual void flush() = 0;
  // Recomputes everything from lines and results and empties the plan: lines without a result are
  // then prepared again. Nothing else may use the store meanwhile.
  virtual void rebuild() = 0;
  struct CheckReport {
    std::vector<std::string> problems;
    std::uint64_t jobs = 0, lines = 0, results = 0, plan_entries = 0;  // no blank lines
  };
  virtual CheckReport check() const = 0;

  // `stop` of the following: once true, the call ends early.

  struct BackupReport {
    std::uint64_t bytes = 0;  // of the backup, what it shares with the one before included
    std::uint64_t new_bytes = 0;  // of these, copied now
    bool operator==(const BackupReport&) const = default;
  };
  // Copies the store as it is at one moment into `directory`, which is made, is empty, or holds
  // the backup that the new one takes the place of, once it is whole. Work goes on meanwhile.
  // Throws std::invalid_argument when the directory holds something else; StorageError when
  // stopped: then the backup before stays.
  virtual BackupReport backup(const std::string& directory, const std::atomic<bool>& stop) = 0;

  struct CompactReport {
    std::uint64_t bytes_before = 0, bytes_after = 0;  // of all table files
  };
  // Writes every table anew, without what was deleted. Throws StorageError when stopped.
  virtual CompactReport compact(std::atomic<bool>& stop) = 0;

  struct PruneReport {
    std::uint64_t jobs = 0, lines = 0, results = 0;  // no blank lines
    bool operator==(const PruneReport&) const = default;
  };
  // Removes jobs that ended before this second with all that belongs to them, each in one durable
  // write. A job that has not ended is never removed.
  virtual PruneReport prune(std::int64_t ended_before_s, const std::atomic<bool>& stop) = 0;
};

// Puts the newest backup of `backup_directory` where a store is to be: every file's checksum is
// compared, then the store is opened and checked, then it gets its name, all or nothing. A restore
// that was cut off is started over. Throws StorageError: kMissing (no backup there), kDamaged
// (names the file), kFull, kIo (there is a store already).
StoreCare::CheckReport restore_backup(const std::string& backup_directory,
                                      const std::string& store_directory);

// Where restore_backup() works until the store is whole.
std::string restoring_directory(const std::string& store_directory);

// A table file that does not hold what was written.
struct DamagedTable {
  std::string file;  // its name
  std::string family;  // empty when not even that can be read
  std::string what;
};
struct TableReport {
  std::uint64_t tables = 0;
  std::vector<DamagedTable> damaged;
};
// Reads every table file of a store that nobody writes, also of one that cannot be opened.
TableReport check_tables(const std::string& store_directory);

}  // namespace batchmill
