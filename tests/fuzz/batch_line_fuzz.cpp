// A line of a job file.
#include "tests/fuzz/batch_line_check.h"
#include "tests/fuzz/fuzz_target.h"

namespace batchmill::fuzz {

void run(std::string_view input) {
  check_parsed_line(input, parse_batch_line(input, BatchLineLimits()));
}

}  // namespace batchmill::fuzz
