// Finds a line by its custom_id, also one that the store's index of ids does not have: lines are
// entered there when they are prepared, and some wait for that, or ended with their job before it.
// Free function, any thread.
#pragma once

#include <cstdint>
#include <string>

#include "storage/job_store.h"

namespace batchmill {

struct LineSearch {
  std::uint64_t line = 0;  // the first line that carries the id; 0: not found (yet)
  std::uint64_t next = 0;  // go on with this line; 0: there is no more to search
};

// Looks at the index, then at a few MiB of lines from `from` on (0 at first), so that nobody waits
// long for the search of another.
LineSearch find_line(const JobStore& store, const Job& job, const std::string& custom_id,
                     std::uint64_t from);

}  // namespace batchmill
