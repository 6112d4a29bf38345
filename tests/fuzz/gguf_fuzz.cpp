// A GGUF file: metadata, tensors, and the model and tokenizer they describe.
#include <algorithm>
#include <stdexcept>

#include "engine/gguf.h"
#include "engine/gguf_tensors.h"
#include "engine/gguf_vocabulary.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/model_check.h"
#include "tests/fuzz/tokenizer_check.h"

namespace batchmill::fuzz {
namespace {

constexpr std::string_view kText = "Hello, wörld  <s> 42";

void check_metadata(const GgufFile& file, std::size_t input_bytes) {
  for (const std::string_view key : file.keys()) {
    require(file.find(key) != nullptr, "a key is not found");
    // Each gives the value or says that it has another type.
    accepts<std::runtime_error>([&] { file.integer(key); });
    accepts<std::runtime_error>([&] { file.number(key); });
    accepts<std::runtime_error>([&] { file.boolean(key); });
    accepts<std::runtime_error>([&] { file.string(key); });
    accepts<std::runtime_error>([&] {
      const auto texts = file.strings(key);
      require(texts->size() <= input_bytes, "an array is larger than the file");
    });
    accepts<std::runtime_error>([&] {
      const auto numbers = file.integers(key);
      require(numbers->size() <= input_bytes, "an array is larger than the file");
    });
  }
}

}  // namespace

void run(std::string_view input) {
  static ScratchFile scratch;
  scratch.write(input);
  accepts<std::runtime_error>([&] {
    const auto file = std::make_shared<const GgufFile>(scratch.path());
    check_metadata(*file, input.size());
    for (const GgufTensor& tensor : file->tensors()) {
      require(file->find_tensor(tensor.name) != nullptr, "a tensor is not found");
      require(tensor.bytes.size() <= input.size(), "a tensor is larger than the file");
    }
    file->content_hash();
    accepts<std::runtime_error>([&] { check_tensors(GgufTensors(file), input.size()); });
    accepts<std::runtime_error>([&] {
      if (auto vocabulary = read_vocabulary(*file)) {
        check_tokenizer(*Tokenizer::create(std::move(*vocabulary)), kText);
      }
    });
    check_model(read_gguf_model(scratch.path()), input.size(), kText);
  });
}

}  // namespace batchmill::fuzz
