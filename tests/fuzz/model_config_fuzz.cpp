// The model that a config.json describes, its positions and its packed weights' form included.
#include <stdexcept>

#include <nlohmann/json.hpp>

#include "engine/folder_config.h"
#include "engine/json_file.h"
#include "engine/model_size.h"
#include "engine/rope.h"
#include "tests/fuzz/fuzz_target.h"

namespace batchmill::fuzz {

void run(std::string_view input) {
  static ScratchFile scratch;
  scratch.write(input);
  accepts<std::runtime_error>([&] {
    const nlohmann::ordered_json json = read_json_file(scratch.path());
    const FolderConfig config = read_folder_config(ConfigObject(&json, "config.json"));
    require(
        config.model.vocab_size > 0 && config.model.num_layers > 0 && config.model.hidden_size > 0,
        "a model has no size");
    require(config.num_extra_layers >= 0, "a negative number of layers");
  });
}

}  // namespace batchmill::fuzz
