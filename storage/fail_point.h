// Points at which a test ends the process. Nothing is left of them in the programs: only a test's
// own build of storage/database_write.cpp defines BATCHMILL_FAIL_POINTS, and what a point does is
// the test's (tests/support/fail_point.cpp).
#pragma once

#ifdef BATCHMILL_FAIL_POINTS

#include <string_view>

namespace batchmill {

// `what`: the name of a write; `side`: "before" or "after" it. Any thread.
void reach_fail_point(std::string_view what, std::string_view side);

}  // namespace batchmill

#define BATCHMILL_FAIL_POINT(what, side) ::batchmill::reach_fail_point(what, side)

#else

#define BATCHMILL_FAIL_POINT(what, side) static_cast<void>(0)

#endif
