// Chooses the next token of each row of logits, as engine/sampler.h does: the same token for the
// same logits, parameters and random number. A pure function of them: sums are of whole numbers, so
// their order does not matter.
#pragma once

#include <cstdint>
#include <limits>

#include "cuda/stream.h"

namespace batchmill {

// What a row's draw depends on. Lists are ranges of the arrays below.
struct SampleRow {
  std::uint64_t seed;
  std::uint32_t choice;
  std::uint32_t position;  // of the draw: the number of generated tokens
  float temperature;  // 0: greedy
  float top_p;  // 1: off
  // log(min_p) × temperature, added to the largest logit. Of min_p 1 it is 0, so −infinity: off.
  float min_p_distance = -std::numeric_limits<float>::infinity();
  std::int32_t top_k;  // 0: off
  float repetition_penalty;  // 1: off
  float presence_penalty;
  float frequency_penalty;
  std::int32_t tokens_begin;  // of `tokens`: the prompt's, then the generated ones
  std::int32_t num_prompt;
  std::int32_t num_generated;
  std::int32_t suppressed_begin;  // of `tokens`: those that must not be chosen
  std::int32_t num_suppressed;
  std::int32_t bias_begin;  // of `bias_tokens` and `biases`
  std::int32_t num_biases;
  std::int32_t logits_row;
  // Its part of the working memory, where changes_logits() is true; else −1.
  std::int32_t changed_row = -1;
};

// Whether biases, suppressed tokens or penalties make other logits of the row's.
inline bool changes_logits(const SampleRow& row) {
  return row.num_biases > 0 || row.num_suppressed > 0 || row.repetition_penalty != 1.0f ||
         row.presence_penalty != 0.0f || row.frequency_penalty != 0.0f;
}

// All in device memory.
struct SamplerArguments {
  const float* logits;  // [logits rows, vocab]
  const SampleRow* rows;
  const std::int32_t* tokens;
  const std::int32_t* bias_tokens;
  const float* biases;
  float* changed;  // [changed rows, vocab] working memory: logits after biases and penalties
  std::uint32_t* seen;  // [changed rows, vocab] working memory
  std::int32_t* chosen;  // [rows]; -1: the logits hold a NaN, +infinity or nothing finite
  int vocab;  // at most kMaxSampledVocab
};

inline constexpr int kMaxSampledVocab = 512 * 1024;

void launch_sample(const SamplerArguments& arguments, int rows, StreamHandle stream);

}  // namespace batchmill
