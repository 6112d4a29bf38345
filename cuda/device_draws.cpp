#include "cuda/device_draws.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "cuda/row_kernels.h"
#include "cuda/sampler_kernels.h"

namespace batchmill {
namespace {

constexpr std::size_t kRowStep = 16;  // that working memory grows by

std::int32_t size_of(const auto& list) { return static_cast<std::int32_t>(list.size()); }

// Sizes of the lists, in elements.
struct ListSizes {
  std::size_t tokens = 0;
  std::size_t biases = 0;
};

// A draw's row, whose lists begin behind those of the draws before it.
SampleRow row_of(const Draw& draw, const ListSizes& before) {
  const SamplingContext& context = draw.context;
  const SamplingParams& params = *context.params;
  SampleRow row{};
  row.seed = params.seed;
  row.choice = static_cast<std::uint32_t>(context.choice);
  row.position = static_cast<std::uint32_t>(context.generated.size());
  row.temperature = params.temperature;
  row.top_p = params.top_p;
  row.min_p_distance = params.min_p > 0.0f ? std::log(params.min_p) * params.temperature : 0.0f;
  row.top_k = params.top_k;
  row.repetition_penalty = params.repetition_penalty;
  row.presence_penalty = params.presence_penalty;
  row.frequency_penalty = params.frequency_penalty;
  row.logits_row = draw.logits_row;
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

void add(const SampleRow& row, ListSizes* sizes) {
  sizes->tokens +=
      static_cast<std::size_t>(row.num_prompt + row.num_generated + row.num_suppressed);
  sizes->biases += static_cast<std::size_t>(row.num_biases);
}

void write_tokens(const Draw& draw, const SampleRow& row, std::int32_t* target) {
  const SamplingContext& context = draw.context;
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

// The draw of the step before that gives the newest of a row's generated tokens; -1 if it is known.
std::int32_t draw_of_newest(const Draw& draw, const SampleRow& row, const Batch& batch) {
  if (row.num_generated == 0 || draw.context.generated.back() != kNoToken) return -1;
  const std::int32_t own = batch.logits_rows[static_cast<std::size_t>(draw.logits_row)];
  return std::ranges::lower_bound(batch.drawn_tokens, own, {}, &DrawnToken::row)->draw;
}

template <typename Buffer>
void reserve(std::unique_ptr<Buffer>* buffer, std::size_t bytes, CudaStream* stream) {
  const std::size_t room = *buffer == nullptr ? 0 : (*buffer)->size_bytes();
  if (bytes <= room) return;
  stream->synchronize();
  buffer->reset();  // and stays so if there is no memory
  *buffer = std::make_unique<Buffer>(bytes);
}

}  // namespace

const std::int32_t* DeviceDraws::chosen() const {
  const Step& step = steps_[last_];
  return step.chosen == nullptr ? nullptr : static_cast<const std::int32_t*>(step.chosen->data());
}

void DeviceDraws::begin(const Tensor& logits, std::span<const Draw> draws, const Batch& batch,
                        CudaStream* stream) {
  const std::int32_t* chosen_before = chosen();
  Step& step = steps_[1 - last_];
  ListSizes sizes;
  std::size_t num_changed = 0;
  std::size_t num_unknown = 0;
  for (const Draw& draw : draws) {
    const SampleRow row = row_of(draw, sizes);
    add(row, &sizes);
    if (changes_logits(row)) ++num_changed;
    if (draw_of_newest(draw, row, batch) >= 0) ++num_unknown;
  }
  const std::size_t list_bytes = sizeof(std::int32_t) * (sizes.tokens + 2 * sizes.biases);
  const std::size_t row_bytes = sizeof(SampleRow) * draws.size();
  const std::size_t bytes = row_bytes + list_bytes + 2 * sizeof(std::int32_t) * num_unknown;
  const std::size_t changed_rows = (num_changed + kRowStep - 1) / kRowStep * kRowStep;
  const std::size_t changed_bytes =
      changed_rows * static_cast<std::size_t>(logits.cols) * sizeof(float);
  reserve(&changed_, changed_bytes, stream);
  reserve(&seen_, changed_bytes, stream);
  const std::size_t chosen_bytes = draws.size() * sizeof(std::int32_t);
  const std::size_t chosen_room = std::bit_ceil(chosen_bytes);
  for (Step& each : steps_) {
    // What is under way stays where it is. Else there is room for a step behind this one as well: a
    // step no larger than an earlier one finds all that it needs.
    if (&each != &step && num_under_way_ > 0) continue;
    each.upload.reserve(bytes, stream);
    reserve(&each.chosen, chosen_room, stream);
    reserve(&each.chosen_on_host, chosen_room, stream);
  }

  std::byte* host = step.upload.begin_write();
  auto* rows = reinterpret_cast<SampleRow*>(host);
  auto* tokens = reinterpret_cast<std::int32_t*>(host + row_bytes);
  std::int32_t* bias_tokens = tokens + sizes.tokens;
  auto* biases = reinterpret_cast<float*>(bias_tokens + sizes.biases);
  auto* unknown = reinterpret_cast<std::int32_t*>(biases + sizes.biases);
  ListSizes before;
  std::int32_t next_changed = 0;
  for (std::size_t i = 0; i < draws.size(); ++i) {
    SampleRow row = row_of(draws[i], before);
    if (changes_logits(row)) row.changed_row = next_changed++;
    write_tokens(draws[i], row, tokens + before.tokens);
    if (const std::int32_t drawn = draw_of_newest(draws[i], row, batch); drawn >= 0) {
      *unknown++ = row.tokens_begin + row.num_prompt + row.num_generated - 1;
      *unknown++ = drawn;
    }
    std::size_t place = before.biases;
    for (const auto& [token, bias] : draws[i].context.params->logit_bias) {
      bias_tokens[place] = token;
      biases[place++] = bias;
    }
    add(row, &before);
    rows[i] = row;
  }
  step.upload.send(bytes, stream);

  std::byte* device = step.upload.device();
  auto* device_tokens = reinterpret_cast<std::int32_t*>(device + row_bytes);
  launch_take_drawn(reinterpret_cast<const std::int32_t*>(device + row_bytes + list_bytes),
                    chosen_before, device_tokens, static_cast<int>(num_unknown), stream->handle());
  SamplerArguments arguments{};
  arguments.logits = static_cast<const float*>(logits.data);
  arguments.rows = reinterpret_cast<const SampleRow*>(device);
  arguments.tokens = device_tokens;
  arguments.bias_tokens = arguments.tokens + sizes.tokens;
  arguments.biases = reinterpret_cast<const float*>(arguments.bias_tokens + sizes.biases);
  if (changed_ != nullptr) {
    arguments.changed = static_cast<float*>(changed_->data());
    arguments.seen = static_cast<std::uint32_t*>(seen_->data());
  }
  arguments.chosen = static_cast<std::int32_t*>(step.chosen->data());
  arguments.vocab = logits.cols;
  launch_sample(arguments, static_cast<int>(draws.size()), stream->handle());
  stream->copy_to_host(step.chosen_on_host->data(), step.chosen->data(), chosen_bytes);
  step.done.record(*stream);
  last_ = 1 - last_;
  ++num_under_way_;
}

void DeviceDraws::end(std::span<Draw> draws) {
  Step& step = steps_[num_under_way_ == 2 ? 1 - last_ : last_];
  --num_under_way_;
  step.done.wait();
  const auto* chosen = reinterpret_cast<const std::int32_t*>(step.chosen_on_host->data());
  for (std::size_t i = 0; i < draws.size(); ++i) draws[i].token = chosen[i];
}

}  // namespace batchmill
