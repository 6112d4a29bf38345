// Fail points of a program that compiles storage/database_write.cpp itself: the process stops or
// dies, as if by a power switch, at the point that the test has chosen.
#pragma once

#include <string>

namespace batchmill::testing {

// "WRITE.SIDE:N[=stop]": at the N-th time that the process reaches this side ("before", "after") of
// the write of this name it kills itself, or stops itself (SIGSTOP). "any:N": at the N-th point of
// all. "": nowhere. Before other threads are there. Throws std::invalid_argument.
void set_fail_point(const std::string& text);

}  // namespace batchmill::testing
