// A fast encoder without a model: a sequence's vector is a function of its token ids in order. It
// checks every Batch against the contract of EncoderRunner::embed and throws std::logic_error where
// it is broken. Not thread-safe, like every EncoderRunner.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "engine/encoder_runner.h"

namespace batchmill::testing {

struct ScriptedEncoderOptions {
  std::int32_t vocab_size = 64;
  std::int32_t embedding_size = 8;
  std::int32_t max_sequence_tokens = 128;
  // If set: called before each step with its number, from 0. May block or throw.
  std::function<void(std::int64_t step)> before_step = nullptr;
};

class ScriptedEncoder : public EncoderRunner {
 public:
  explicit ScriptedEncoder(ScriptedEncoderOptions options) : options_(std::move(options)) {}

  std::int32_t vocab_size() const override { return options_.vocab_size; }
  std::int32_t embedding_size() const override { return options_.embedding_size; }
  std::int32_t max_sequence_tokens() const override { return options_.max_sequence_tokens; }
  void embed(const Batch& batch, std::span<float> embeddings) override;

  // What embed() gives for one sequence.
  static std::vector<float> vector_of(std::span<const TokenId> tokens, std::int32_t size);

  const std::vector<std::int32_t>& step_sizes() const { return step_sizes_; }  // sequences

 private:
  ScriptedEncoderOptions options_;
  std::int64_t num_steps_ = 0;
  std::vector<std::int32_t> step_sizes_;
};

}  // namespace batchmill::testing
