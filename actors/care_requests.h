// What users ask of a store as a whole: {"what": "backup" | "compact" | "prune"}. The running
// daemon and a tool that holds the store itself do the same. Pure functions but for the store.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "queue/wire.h"
#include "storage/store_care.h"

namespace batchmill {

bool is_care_request(const Json& header);

// Does what is asked and answers with the response header:
//   backup   {directory: absolute path} → {bytes, new_bytes}
//   compact  {}                         → {bytes_before, bytes_after}
//   prune    {older_than_s}             → {jobs, lines, results}
// or {"op":"error","code":…,"message":…}: invalid_request, storage_full, storage_error. `now_s`:
// unix seconds. Once `stop` is true it ends early.
Json care_response(const Json& request, StoreCare& store, std::int64_t now_s,
                   std::atomic<bool>& stop);

// One line for people about what was done, or why not.
std::string care_text(const Json& request, const Json& answer);

}  // namespace batchmill
