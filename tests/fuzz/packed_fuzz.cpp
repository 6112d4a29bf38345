// Matrices of four bits: the part "config" is a quantization_config, "model.safetensors" holds the
// arrays of one matrix "w".
#include <stdexcept>

#include <nlohmann/json.hpp>

#include "engine/json_file.h"
#include "engine/packed_linear.h"
#include "tests/fuzz/fuzz_target.h"

namespace batchmill::fuzz {

void run(std::string_view input) {
  static ScratchFolder folder;
  folder.clear();
  const auto parts = split_parts(input);
  folder.write("config.json", find_part(parts, "config"));
  folder.write("model.safetensors", find_part(parts, "model.safetensors"));
  accepts<std::runtime_error>([&] {
    const nlohmann::ordered_json json = read_json_file(folder.path() + "/config.json");
    const PackedFormat format = read_packed_format(ConfigObject(&json, "config.json"));
    const SafetensorsFolder files(folder.path());
    const PackedLinear linear(files, "w", format);
    require(linear.in_features() > 0 && linear.out_features() > 0, "a matrix is empty");
    require(static_cast<std::size_t>(linear.in_features()) <= 8 * input.size(),
            "a row is larger than the file");
    std::vector<float> strip(
        static_cast<std::size_t>(PackedLinear::kStripRows * linear.in_features()));
    for (std::int64_t first = 0; first < linear.out_features(); first += PackedLinear::kStripRows) {
      const std::int64_t count = std::min(PackedLinear::kStripRows, linear.out_features() - first);
      linear.read_rows(first, count, strip.data());
    }
    linear.release();
  });
}

}  // namespace batchmill::fuzz
