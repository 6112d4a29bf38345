#include "cuda/sample_rows.h"

#include <algorithm>
#include <cmath>
#include <span>

namespace batchmill {
namespace {

std::int32_t size_of(const auto& list) { return static_cast<std::int32_t>(list.size()); }

}  // namespace

SampleRow sample_row(const SamplingContext& context, std::int32_t logits_row,
                     const SampleLists& before) {
  const SamplingParams& params = *context.params;
  SampleRow row{};
  row.seed = params.seed;
  row.choice = static_cast<std::uint32_t>(context.choice);
  row.position = static_cast<std::uint32_t>(context.generated.size());
  row.temperature = params.temperature;
  row.top_p = params.top_p;
  if (params.min_p > 0.0f) row.min_p_distance = std::log(params.min_p) * params.temperature;
  row.top_k = params.top_k;
  row.repetition_penalty = params.repetition_penalty;
  row.presence_penalty = params.presence_penalty;
  row.frequency_penalty = params.frequency_penalty;
  row.logits_row = logits_row;
  // Tokens that nothing is made of stay here.
  const bool counts = params.presence_penalty != 0.0f || params.frequency_penalty != 0.0f;
  const bool looks_back = params.repetition_penalty != 1.0f;
  row.tokens_begin = static_cast<std::int32_t>(before.tokens);
  row.num_prompt = looks_back ? size_of(context.prompt) : 0;
  row.num_generated = looks_back || counts ? size_of(context.generated) : 0;
  row.suppressed_begin = row.tokens_begin + row.num_prompt + row.num_generated;
  if (size_of(context.generated) < params.min_tokens) {
    row.num_suppressed = size_of(context.eos_token_ids) + size_of(params.stop_token_ids);
  }
  row.bias_begin = static_cast<std::int32_t>(before.biases);
  row.num_biases = size_of(params.logit_bias);
  return row;
}

void add_lists(const SampleRow& row, SampleLists* lists) {
  lists->tokens +=
      static_cast<std::size_t>(row.num_prompt + row.num_generated + row.num_suppressed);
  lists->biases += static_cast<std::size_t>(row.num_biases);
}

void write_tokens(const SamplingContext& context, const SampleRow& row, std::int32_t* target) {
  const auto write = [&](std::span<const TokenId> list) {
    target = std::copy(list.begin(), list.end(), target);
  };
  if (row.num_prompt > 0) write(context.prompt);
  if (row.num_generated > 0) write(context.generated);
  if (row.num_suppressed > 0) {
    write(context.eos_token_ids);
    write(context.params->stop_token_ids);
  }
}

void write_biases(const SamplingContext& context, std::int32_t* tokens, float* biases) {
  for (const auto& [token, bias] : context.params->logit_bias) {
    *tokens++ = token;
    *biases++ = bias;
  }
}

}  // namespace batchmill
