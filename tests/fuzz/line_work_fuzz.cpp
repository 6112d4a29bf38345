// What the plan keeps of a prepared line.
#include <stdexcept>

#include "actors/line_work.h"
#include "tests/fuzz/fuzz_target.h"

namespace batchmill::fuzz {

void run(std::string_view input) {
  accepts<std::runtime_error>([&] {
    const std::string bytes = encode_line_work(decode_line_work(input));
    require(encode_line_work(decode_line_work(bytes)) == bytes, "a plan entry's request changes");
  });
}

}  // namespace batchmill::fuzz
