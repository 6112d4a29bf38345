// How much of all uploads may be in memory: what clients may send ahead of the disk, and which
// uploads are given up when the lines that have not ended are too much. Functions of the intake's
// state, on its thread.
#pragma once

#include <cstdint>
#include <map>

#include "actors/intake.h"

namespace batchmill {

// What an upload may be ahead of the disk: all together have so much, and each gets on.
std::uint64_t credit_of(const IntakeState& state, const Upload& upload, const QueueOptions& queue);

// Of all uploads, what has been received and is not durable. Each may hold one line that has not
// ended, and that is much when many do.
std::uint64_t unfinished_bytes(const IntakeState& state);

// The upload with such a line whose client has been silent for longest, and of which nothing is on
// its way to the disk; none: the end. `current`: not this one.
std::map<JobId, Upload>::iterator longest_silent(IntakeState& state, const JobId& current);

}  // namespace batchmill
