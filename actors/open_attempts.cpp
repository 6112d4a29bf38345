#include "actors/open_attempts.h"

#include <spdlog/spdlog.h>

namespace batchmill {

void forgive_attempts(JobStore& store, const std::vector<LineKey>& lines) {
  try {
    store.clear_attempts(lines);
  } catch (const StorageError& error) {
    spdlog::warn("{} lines that came back count as tried: {}", lines.size(), error.what());
  }
}

}  // namespace batchmill
