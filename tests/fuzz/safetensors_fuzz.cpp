// A safetensors file.
#include <algorithm>
#include <stdexcept>

#include "engine/safetensors.h"
#include "engine/safetensors_floats.h"
#include "tests/fuzz/fuzz_target.h"

namespace batchmill::fuzz {

void run(std::string_view input) {
  static ScratchFile scratch;
  scratch.write(input);
  accepts<std::runtime_error>([&] {
    const SafetensorsFile file(scratch.path());
    std::size_t total = 0;
    for (const SafetensorsTensor& tensor : file.tensors()) {
      total += tensor.bytes.size();
      const std::int64_t count = tensor.num_elements();
      require(count >= 0, "an array has a negative size");
      if (!float_type(tensor.dtype) || count == 0) continue;
      require(static_cast<std::size_t>(count) <= tensor.bytes.size(),
              "an array has more numbers than bytes");
      std::vector<float> values(static_cast<std::size_t>(count));
      read_floats(tensor, 0, count, values.data());
      read_floats(tensor, count - 1, 1, values.data());
      file.release(tensor);
    }
    require(total < input.size(), "the arrays are larger than the file");
    file.content_hash(0);
  });
}

}  // namespace batchmill::fuzz
