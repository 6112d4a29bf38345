// Whether this process may start the threads that it is going to need. Several libraries abort
// where one cannot be started, so that is found out before they are asked. Any thread.
#pragma once

#include <cstddef>

namespace batchmill {

// Starts so many threads at a time, and ends them. Throws ToolError (kExitUsage) if they cannot be.
void check_thread_limit(std::size_t num_threads);

}  // namespace batchmill
