// Finds where the logs of a store that is about to be opened stop being one sequence. A disk keeps
// what was not synced in any order, so a power cut may leave later pages of a log and zeros in the
// place of earlier ones; RocksDB passes over zeros and reads on. Knows the form of RocksDB's logs
// and nothing of what is in them but the key keys::kSynced. One thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace batchmill {

struct LogTear {
  std::uint64_t log = 0;  // number of the file …
  std::string file_name;
  std::uint64_t num_batches = 0;  // … and how many batches of it are good
  bool promised = false;  // what is missing was on the disk once: damage, not a power cut
};

// Looks at the logs from number `first_log` on. `names_syncs`: whoever wrote them keeps
// keys::kSynced; where neither this nor the logs say so, an older program did, and nothing is
// found: RocksDB judges. Throws StorageError (kIo) when a log cannot be read.
std::optional<LogTear> find_log_tear(const std::string& directory, std::uint64_t first_log,
                                     bool names_syncs);

}  // namespace batchmill
