// Batch objects as a table for people. Pure functions.
#pragma once

#include <string>
#include <vector>

#include "queue/wire.h"

namespace batchmill {

// One row per job: progress, tokens a second, time left, cost so far.
std::string jobs_table(const std::vector<Json>& batches);

}  // namespace batchmill
