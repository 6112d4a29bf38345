// What is said when a job has ended, and the exit code that follows from it. Pure functions.
#pragma once

#include <string>

#include "queue/wire.h"

namespace batchmill {

bool has_ended(const Json& batch);

// 0 when every line completed, else 1. Precondition: the job has ended.
int job_exit_code(const Json& batch);

// "140 done, 9 failed of 149 lines", the same wherever a person reads it. Done: with an answer.
std::string lines_text(const Json& batch);

// The first line says how the job ended ("all 3 lines failed"); warnings follow, one a line. Ends
// with a newline.
std::string job_summary(const Json& batch);

}  // namespace batchmill
