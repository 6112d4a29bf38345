// CpuBackend's operations of multi-head latent attention. A cached token is one row [latent |
// rotated key part], rows stand one after the other: [blocks][block size][cached dim].
#include <algorithm>
#include <cstring>

#include "engine/cpu/cpu_backend.h"

namespace batchmill {

void CpuBackend::multiply_heads(const Tensor& input,
                                const std::vector<std::unique_ptr<Matrix>>& weights,
                                const Tensor& output) {
  const auto num_heads = static_cast<std::int32_t>(weights.size());
  const Matrix& first = *weights.front();
  const std::int32_t rows = padded_rows(input.rows);
  const Tensor head_input{nullptr, input.dtype, rows, first.in_features()};
  const Tensor head_output{nullptr, output.dtype, rows, first.out_features()};
  const std::size_t input_bytes = (head_input.bytes() + 63) / 64 * 64;
  std::byte* memory = reserve_work(input_bytes + head_output.bytes());
  const Tensor from{memory, input.dtype, input.rows, first.in_features()};
  const Tensor to{memory + input_bytes, output.dtype, input.rows, first.out_features()};
  const std::size_t input_stride = input.row_bytes() / static_cast<std::size_t>(num_heads);
  const std::size_t output_stride = output.row_bytes() / static_cast<std::size_t>(num_heads);
  finish();
  for (std::int32_t head = 0; head < num_heads; ++head) {
    for (std::int32_t i = 0; i < input.rows; ++i) {
      std::memcpy(row_of(from, i), row_of(input, i) + static_cast<std::size_t>(head) * input_stride,
                  from.row_bytes());
    }
    matmul(from, *weights[static_cast<std::size_t>(head)], to);
    finish();
    for (std::int32_t i = 0; i < input.rows; ++i) {
      std::memcpy(row_of(output, i) + static_cast<std::size_t>(head) * output_stride, row_of(to, i),
                  to.row_bytes());
    }
  }
}

void CpuBackend::rotate_heads(const Tensor& queries, const Tensor& rotations,
                              const Tensor& output) {
  const auto rotate = kernels_.rotate[index_of(queries.dtype)];
  const std::int32_t rotated = rotations.cols;
  const auto bytes = static_cast<std::size_t>(rotated * dtype_bytes(queries.dtype));
  const std::size_t input_stride = queries.row_bytes() / static_cast<std::size_t>(heads_.num_heads);
  const std::size_t output_stride = output.row_bytes() / static_cast<std::size_t>(heads_.num_heads);
  divide_now(queries.rows, queries.cols, [&](std::int32_t i) {
    for (std::int32_t head = 0; head < heads_.num_heads; ++head) {
      const auto end = static_cast<std::size_t>(head + 1);
      std::byte* target = row_of(output, i) + end * output_stride - bytes;
      std::memcpy(target, row_of(queries, i) + end * input_stride - bytes, bytes);
      rotate(target, 1, rotated, rotations.row<float>(i));
    }
  });
}

void CpuBackend::store_latent(const Tensor& latent, const Norm& norm, const Tensor& rotations,
                              const KvCache& cache, std::int32_t layer) {
  const KvCacheShape& shape = cache.shape();
  const auto narrow = kernels_.narrow[index_of(shape.dtype)];
  const auto rotate = kernels_.rotate[index_of(DType::kF32)];
  const std::int64_t row_bytes = std::int64_t{shape.latent_dim} * dtype_bytes(shape.dtype);
  divide_now(latent.rows, latent.cols, [&](std::int32_t i) {
    float* row = latent.row<float>(i);
    norm_row(row, norm, norm.weight.cols, DType::kF32, row);
    rotate(row + norm.weight.cols, 1, rotations.cols, rotations.row<float>(i));
    const std::int64_t slot = batch_->slot_mapping[static_cast<std::size_t>(i)];
    narrow(row, latent.cols, cache.layer(layer) + slot * row_bytes);
  });
}

void CpuBackend::latent_attention(const Tensor& queries, const KvCache& cache, std::int32_t layer,
                                  float scale, const Tensor& output) {
  const KvCacheShape& shape = cache.shape();
  finish();
  const auto attend = kernels_.attend_latent[index_of(queries.dtype)][index_of(shape.dtype)];
  const std::int32_t groups = (heads_.num_heads + kLatentHeads - 1) / kLatentHeads;
  const std::int32_t longest =
      *std::max_element(batch_->context_lens.begin(), batch_->context_lens.end());
  const std::size_t floats = latent_scratch_floats(shape.latent_dim, longest);
  auto* scratch = reinterpret_cast<float*>(
      reserve_work(floats * static_cast<std::size_t>(num_threads_) * sizeof(float)));
  LatentTask common;
  common.layer = cache.layer(layer);
  common.width = shape.latent_dim;
  common.value_dim = output.cols / heads_.num_heads;
  common.block_size_tokens = shape.block_size_tokens;
  common.scale = scale;
  const std::size_t query_bytes = queries.row_bytes() / static_cast<std::size_t>(heads_.num_heads);
  const std::size_t output_bytes = output.row_bytes() / static_cast<std::size_t>(heads_.num_heads);
  for (std::int32_t s = 0; s < batch_->num_seqs(); ++s) {
    const std::int32_t begin = batch_->cu_seqlens[static_cast<std::size_t>(s)];
    const std::int32_t end = batch_->cu_seqlens[static_cast<std::size_t>(s) + 1];
    common.block_table = batch_->block_tables.data() + std::int64_t{s} * batch_->max_blocks;
    const std::int32_t num_tasks = (end - begin) * groups;
    const auto attend_heads = [&](std::int32_t index, std::int32_t thread) {
      const auto t = num_tasks - 1 - index;
      const std::int32_t row = begin + t / groups;
      const std::int32_t head = t % groups * kLatentHeads;
      LatentTask task = common;
      task.queries = row_of(queries, row) + static_cast<std::size_t>(head) * query_bytes;
      task.output = row_of(output, row) + static_cast<std::size_t>(head) * output_bytes;
      task.num_heads = std::min(kLatentHeads, heads_.num_heads - head);
      task.num_keys = batch_->positions[static_cast<std::size_t>(row)] + 1;
      task.scratch = scratch + floats * static_cast<std::size_t>(thread);
      attend(task);
    };
    team_.take_turns(num_tasks > 1 ? num_threads_ : 1, num_tasks, attend_heads);
  }
}

}  // namespace batchmill
