// Settings of the store.
#pragma once

#include <cstdint>
#include <string>

namespace batchmill {

struct StorageOptions {
  // Sync the write-ahead log before a line is acked or a result becomes visible. Off: a power cut
  // may lose the last second (a killed process loses nothing).
  bool sync = true;
  std::string compression = "zstd";  // "none", "lz4", "zstd": bottom levels
  std::uint64_t block_cache_bytes = 64ull << 20;
  std::uint64_t write_buffer_bytes = 64ull << 20;  // over all column families
  std::uint64_t max_total_wal_bytes = 256ull << 20;
  std::int32_t max_open_files = 512;
  // Compaction makes way for threads that somebody waits for. Off: somebody waits for it.
  bool compaction_yields = true;
};

}  // namespace batchmill
