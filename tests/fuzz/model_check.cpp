#include "tests/fuzz/model_check.h"

#include <stdexcept>

#include "engine/chat_template.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/tokenizer_check.h"

namespace batchmill::fuzz {

void check_tensors(const TensorSource& tensors, std::size_t input_bytes) {
  for (const TensorInfo& info : tensors.tensors()) {
    require(tensors.find(info.name) != nullptr, "a tensor is not found by its name");
    require(info.bytes <= input_bytes, "a tensor is larger than the file");
    if (!info.readable || info.rows <= 0 || info.cols <= 0) continue;
    // At the fewest 1 bit per number, so this is bounded by the file.
    require(static_cast<std::size_t>(info.cols) <= 8 * input_bytes,
            "a row is larger than the file");
    std::vector<float> row(static_cast<std::size_t>(info.cols));
    tensors.read_row(info, 0, row.data());
    tensors.read_row(info, info.rows - 1, row.data());
    tensors.release(info);
  }
}

void check_model(ModelFiles files, std::size_t input_bytes, std::string_view text) {
  const ModelConfig& config = files.config;
  require(config.vocab_size > 0, "a model has no vocabulary");
  for (const TokenId id : files.eos_token_ids) {
    require(id >= 0 && id < config.vocab_size, "an end token is outside the vocabulary");
  }
  check_tensors(*files.tensors, input_bytes);
  if (files.chat_template) {
    accepts<TemplateError>([&] { ChatTemplate(*files.chat_template, "<s>", "</s>"); });
  }
  if (files.vocabulary) {
    accepts<std::runtime_error>(
        [&] { check_tokenizer(*Tokenizer::create(std::move(*files.vocabulary)), text); });
  }
}

}  // namespace batchmill::fuzz
