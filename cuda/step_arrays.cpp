#include "cuda/step_arrays.h"

#include <algorithm>
#include <span>

namespace batchmill {
namespace {

constexpr std::int32_t kNoSlot = -1;

// Writes arrays one after the other and tells where the device will find them.
class Writer {
 public:
  Writer(std::byte* host, std::byte* device)
      : host_(reinterpret_cast<std::int32_t*>(host)),
        device_(reinterpret_cast<std::int32_t*>(device)) {}

  // `count` numbers: the array's, then `filler`.
  std::int32_t* add(std::span<const std::int32_t> values, std::size_t count, std::int32_t filler) {
    std::int32_t* target = host_ + size_;
    std::fill(std::copy(values.begin(), values.end(), target), target + count, filler);
    std::int32_t* place = device_ + size_;
    size_ += count;
    return place;
  }
  std::int32_t* reserve(std::size_t count) {
    size_ += count;
    return host_ + (size_ - count);
  }
  const std::int32_t* device_end() const { return device_ + size_; }
  std::size_t size() const { return size_; }

 private:
  std::int32_t* host_;
  std::int32_t* device_;
  std::size_t size_ = 0;
};

}  // namespace

bool StepArrays::send(const Batch& batch, std::int32_t rows, CudaStream* stream) {
  const auto padded = static_cast<std::size_t>(rows);
  const std::size_t added = padded - batch.token_ids.size();
  const std::size_t sequences = batch.context_lens.size() + added;
  const std::size_t logits = batch.logits_rows.size() + added;
  bool moved = false;
  while (table_stride_ < batch.max_blocks) {
    table_stride_ *= 2;
    moved = true;
  }
  const auto stride = static_cast<std::size_t>(table_stride_);
  const std::size_t count = 3 * padded + logits + sequences + 1 + sequences * stride +
                            3 * batch.copies.size() + 2 * batch.drawn_tokens.size();
  moved |= upload_.reserve(count * sizeof(std::int32_t), stream);

  Writer writer(upload_.begin_write(), upload_.device());
  token_ids_ = writer.add(batch.token_ids, padded, 0);
  positions_ = writer.add(batch.positions, padded, 0);
  slots_ = writer.add(batch.slot_mapping, padded, kNoSlot);
  logits_rows_ = writer.add(batch.logits_rows, logits, 0);
  cu_seqlens_ = writer.add(batch.cu_seqlens, sequences + 1, batch.num_tokens());
  block_tables_ = writer.device_end();
  const auto max_blocks = static_cast<std::size_t>(batch.max_blocks);
  for (std::size_t s = 0; s < batch.context_lens.size(); ++s) {
    writer.add(std::span(batch.block_tables).subspan(s * max_blocks, max_blocks), stride, kNoBlock);
  }
  writer.add({}, added * stride, kNoBlock);
  copies_ = writer.device_end();
  std::int32_t* copies = writer.reserve(3 * batch.copies.size());
  for (const BlockCopy& copy : batch.copies) {
    *copies++ = copy.source;
    *copies++ = copy.destination;
    *copies++ = copy.num_tokens;
  }
  drawn_tokens_ = writer.device_end();
  std::int32_t* drawn = writer.reserve(2 * batch.drawn_tokens.size());
  for (const DrawnToken& token : batch.drawn_tokens) {
    *drawn++ = token.row;
    *drawn++ = token.draw;
  }
  upload_.send(writer.size() * sizeof(std::int32_t), stream);
  return moved;
}

}  // namespace batchmill
