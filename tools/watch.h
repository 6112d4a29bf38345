// Follows a job to its end, across restarts of the daemon.
#pragma once

#include <chrono>
#include <string>

#include "tools/job_access.h"

namespace batchmill {

// Shows progress on stderr; returns the batch object of the ended job. Throws ToolError
// (kExitUnreachable) when no daemon answers for `patience`, (kExitNotFound).
Json watch_job(JobAccess& access, const std::string& job, bool quiet,
               std::chrono::seconds patience);

}  // namespace batchmill
