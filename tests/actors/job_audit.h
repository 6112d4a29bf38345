// What must be true of a job and of a store whatever has happened to the processes that worked on
// them. Failures are the running test's.
#pragma once

#include <cstddef>
#include <string>

#include "tests/actors/test_client.h"

namespace batchmill::testing {

// Results, counts and bills of a completed job in which every line is there once.
void expect_exact(TestClient& client, const std::string& job, std::size_t num_lines,
                  std::size_t num_failed);

// A store that nobody has open: its records agree, and what is computed from lines and results
// alone is what is there. Leaves the store as it is.
void audit_store(const std::string& store_path);

}  // namespace batchmill::testing
