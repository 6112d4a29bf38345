// A model's folder, each file a part of the input: config.json, safetensors and their index,
// tokenizer, template and generation settings.
#include <stdexcept>

#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/model_check.h"

namespace batchmill::fuzz {

void run(std::string_view input) {
  static ScratchFolder folder;
  folder.clear();
  for (const auto& [name, content] : split_parts(input)) folder.write(name, content);
  accepts<std::runtime_error>(
      [&] { check_model(read_model_folder(folder.path()), input.size(), "Hello, wörld  <s> 42"); });
}

}  // namespace batchmill::fuzz
