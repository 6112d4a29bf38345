#include "cuda/device_draws.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "cuda/model_limits.h"
#include "cuda/row_kernels.h"
#include "cuda/sample_rows.h"

namespace batchmill {
namespace {

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
  SampleLists sizes;
  std::int32_t num_logits = 0;  // rows that draws are from: those of one lie together
  std::int32_t num_changed = 0;
  std::size_t num_unknown = 0;
  std::int32_t latest_row = -1;
  for (const Draw& draw : draws) {
    if (std::exchange(latest_row, draw.logits_row) != draw.logits_row) ++num_logits;
    const SampleRow row = sample_row(draw.context, draw.logits_row, sizes);
    add_lists(row, &sizes);
    if (changes_logits(row)) ++num_changed;
    if (draw_of_newest(draw, row, batch) >= 0) ++num_unknown;
  }
  const std::size_t list_bytes = sizeof(std::int32_t) * (sizes.tokens + 2 * sizes.biases);
  const std::size_t row_bytes = sizeof(SampleRow) * draws.size();
  const std::size_t bytes = row_bytes + list_bytes + 2 * sizeof(std::int32_t) * num_unknown;
  const std::int32_t group_rows = draw_group_rows(num_logits);
  const std::int32_t changed_rows = std::min(draw_group_rows(num_changed), group_rows);
  const std::size_t changed_bytes = static_cast<std::size_t>(changed_rows) *
                                    static_cast<std::size_t>(logits.cols) * sizeof(float);
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
  SampleLists before;
  std::int32_t next_changed = 0;
  group_ends_.clear();
  for (std::size_t i = 0; i < draws.size(); ++i) {
    const SamplingContext& context = draws[i].context;
    SampleRow row = sample_row(context, draws[i].logits_row, before);
    if (changes_logits(row)) {
      if (next_changed == group_rows) {
        group_ends_.push_back(static_cast<int>(i));
        next_changed = 0;
      }
      row.changed_row = next_changed++;
    }
    write_tokens(context, row, tokens + before.tokens);
    if (const std::int32_t drawn = draw_of_newest(draws[i], row, batch); drawn >= 0) {
      *unknown++ = row.tokens_begin + row.num_prompt + row.num_generated - 1;
      *unknown++ = drawn;
    }
    write_biases(context, bias_tokens + before.biases, biases + before.biases);
    add_lists(row, &before);
    rows[i] = row;
  }
  group_ends_.push_back(static_cast<int>(draws.size()));
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
  int begin = 0;
  for (const int end : group_ends_) {
    launch_sample(arguments, end - begin, stream->handle());
    arguments.rows += end - begin;
    arguments.chosen += end - begin;
    begin = end;
  }
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
