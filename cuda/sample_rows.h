// What the sampler kernel reads of draws: a row for each, and the lists that rows have parts of.
// Plain functions; no device is involved.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/sampler_kernels.h"
#include "engine/draw.h"

namespace batchmill {

// Sizes of the lists, in elements.
struct SampleLists {
  std::size_t tokens = 0;
  std::size_t biases = 0;
};

// A draw's row, whose lists begin behind those of the draws before it; without working memory.
SampleRow sample_row(const SamplingContext& context, std::int32_t logits_row,
                     const SampleLists& before);
void add_lists(const SampleRow& row, SampleLists* lists);

// The row's tokens, to `target` and behind; likewise its biases and the tokens that have them.
void write_tokens(const SamplingContext& context, const SampleRow& row, std::int32_t* target);
void write_biases(const SamplingContext& context, std::int32_t* tokens, float* biases);

}  // namespace batchmill
