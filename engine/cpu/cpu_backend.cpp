#include "engine/cpu/cpu_backend.h"

#include <omp.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <stdexcept>

#include "engine/cpu/cpu_memory.h"
#include "engine/cpu/kv_layout.h"
#include "engine/dequantize.h"

namespace batchmill {
namespace {

std::size_t index_of(DType dtype) { return static_cast<std::size_t>(dtype); }

std::byte* row_of(const Tensor& tensor, std::int64_t row) {
  return static_cast<std::byte*>(tensor.data) + row * static_cast<std::int64_t>(tensor.row_bytes());
}

DType activations_for(DType weights, InstructionSet set) {
  if (weights != DType::kI8) return weights;
  return set == InstructionSet::kAvx512Bf16 ? DType::kBF16 : DType::kF32;
}

// Elements below which a loop runs on the calling thread alone: about ten microseconds of work.
constexpr std::int64_t kMinParallelElements = 16384;

}  // namespace

CpuBackend::CpuBackend(DType dtype, std::int32_t num_threads, InstructionSet set,
                       bool deterministic)
    : dtype_(dtype),
      kernels_(kernels_for(set)),
      gemm_(activations_for(dtype, set), deterministic ? &kernels_ : nullptr),
      int8_gemm_(kernels_),
      num_threads_(num_threads) {
  if (num_threads < 1) throw std::invalid_argument("a CPU backend needs at least one thread");
}

std::string CpuBackend::describe() const {
  return std::string("cpu ") + dtype_name(dtype_) + ", " + std::to_string(num_threads_) +
         " threads, kernels " + instruction_set_name(kernels_.set);
}

std::unique_ptr<DeviceBuffer> CpuBackend::allocate(std::size_t bytes) {
  return allocate_cpu_buffer(bytes);
}

void CpuBackend::upload(std::span<const std::byte> host, void* device) {
  std::memcpy(device, host.data(), host.size());
}

void CpuBackend::download(const Tensor& device, std::span<float> host) {
  const auto cols = static_cast<std::size_t>(device.cols);
#pragma omp parallel for schedule(static) num_threads(threads_for(device.rows, device.cols))
  for (std::int32_t i = 0; i < device.rows; ++i) {
    std::memcpy(host.data() + i * cols, device.row<float>(i), cols * sizeof(float));
  }
}

std::unique_ptr<KvCache> CpuBackend::make_kv_cache(const KvCacheShape& shape) {
  if (shape.block_size_tokens < 1 || shape.block_size_tokens % kKvGroupTokens != 0) {
    throw std::runtime_error("the block size must be a multiple of " +
                             std::to_string(kKvGroupTokens) + " tokens, not " +
                             std::to_string(shape.block_size_tokens));
  }
  if (shape.head_dim % 16 != 0) {
    throw std::runtime_error("the head size must be a multiple of 16, not " +
                             std::to_string(shape.head_dim));
  }
  return std::make_unique<KvCache>(shape, allocate(shape.bytes()));
}

std::unique_ptr<Matrix> CpuBackend::make_matrix(std::int32_t out_features, std::int32_t in_features,
                                                const RowSource& rows) {
  if (dtype_ == DType::kI8 && Int8Gemm::can_pack(in_features)) {
    return int8_gemm_.pack(out_features, in_features, rows, num_threads_);
  }
  omp_set_num_threads(num_threads_);
  return gemm_.pack(out_features, in_features, rows);
}

std::unique_ptr<DeviceBuffer> CpuBackend::make_table(std::int32_t rows, std::int32_t cols,
                                                     const RowSource& source) {
  const Tensor table{nullptr, activation_dtype(), rows, cols};
  auto buffer = allocate(table.bytes());
#pragma omp parallel num_threads(num_threads_)
  {
    std::vector<float> row(static_cast<std::size_t>(cols));
#pragma omp for schedule(static)
    for (std::int32_t i = 0; i < rows; ++i) {
      source(i, row.data());
      std::byte* target = static_cast<std::byte*>(buffer->data()) + i * table.row_bytes();
      if (table.dtype == DType::kF32) {
        std::memcpy(target, row.data(), table.row_bytes());
      } else {
        std::transform(row.begin(), row.end(), reinterpret_cast<std::uint16_t*>(target),
                       bfloat16_from_float);
      }
    }
  }
  return buffer;
}

int CpuBackend::threads_for(std::int32_t rows, std::int32_t cols) const {
  return std::int64_t{rows} * cols < kMinParallelElements ? 1 : num_threads_;
}

void CpuBackend::begin_step(const Batch& batch, const HeadShape& heads) {
  omp_set_num_threads(num_threads_);  // a setting of the calling thread
  batch_ = &batch;
  heads_ = heads;
  plan_attention();
}

void CpuBackend::plan_attention() {
  const std::int32_t group = heads_.num_heads / heads_.num_kv_heads;
  const std::int32_t tile_rows = attention_tile_queries(group);
  const std::size_t floats = attention_scratch_floats(group, heads_.head_dim);
  if (floats > scratch_floats_) {
    scratch_ = allocate(floats * static_cast<std::size_t>(num_threads_) * sizeof(float));
    scratch_floats_ = floats;
  }
  tiles_.clear();
  for (std::int32_t s = 0; s < batch_->num_seqs(); ++s) {
    const std::int32_t begin = batch_->cu_seqlens[static_cast<std::size_t>(s)];
    const std::int32_t end = batch_->cu_seqlens[static_cast<std::size_t>(s) + 1];
    const std::int32_t context = batch_->context_lens[static_cast<std::size_t>(s)];
    for (std::int32_t head = 0; head < heads_.num_kv_heads; ++head) {
      for (std::int32_t row = begin; row < end; row += tile_rows) {
        tiles_.push_back({s, head, row, std::min(tile_rows, end - row), context - (end - row)});
      }
    }
  }
}

void CpuBackend::copy_blocks(const KvCache& cache) {
  const KvCacheShape& shape = cache.shape();
  const std::size_t element = static_cast<std::size_t>(dtype_bytes(shape.dtype));
  const auto group_address = [&](std::byte* layer, BlockId block, std::int32_t which,
                                 std::int32_t head) {
    return layer +
           static_cast<std::size_t>(kv_group_index(block, which, head, 0, shape.num_kv_heads,
                                                   shape.block_size_tokens, shape.head_dim)) *
               element;
  };
  for (const BlockCopy& copy : batch_->copies) {
    // Whole groups: what lies behind the copied tokens is unused in both blocks.
    const std::int32_t tokens =
        (copy.num_tokens + kKvGroupTokens - 1) / kKvGroupTokens * kKvGroupTokens;
    const std::size_t bytes = static_cast<std::size_t>(tokens) * shape.head_dim * element;
    for (std::int32_t l = 0; l < shape.num_layers; ++l) {
      for (std::int32_t which = 0; which < 2; ++which) {
        for (std::int32_t head = 0; head < shape.num_kv_heads; ++head) {
          std::memcpy(group_address(cache.layer(l), copy.destination, which, head),
                      group_address(cache.layer(l), copy.source, which, head), bytes);
        }
      }
    }
  }
}

void CpuBackend::embed(const Tensor& table, const Tensor& output) {
  const auto widen = kernels_.widen[index_of(table.dtype)];
#pragma omp parallel for schedule(static) num_threads(threads_for(output.rows, output.cols))
  for (std::int32_t i = 0; i < output.rows; ++i) {
    const TokenId token = batch_->token_ids[static_cast<std::size_t>(i)];
    widen(row_of(table, token), output.cols, output.row<float>(i));
  }
}

void CpuBackend::rotation_table(const Tensor& frequencies, const Tensor& output) {
  const std::int32_t half = frequencies.cols;
  const float* frequency = frequencies.row<float>(0);
#pragma omp parallel for schedule(static) num_threads(threads_for(output.rows, 16 * output.cols))
  for (std::int32_t i = 0; i < output.rows; ++i) {
    const auto position = static_cast<float>(batch_->positions[static_cast<std::size_t>(i)]);
    float* row = output.row<float>(i);
    for (std::int32_t j = 0; j < half; ++j) {
      const float angle = position * frequency[j];
      row[j] = std::cos(angle);
      row[half + j] = std::sin(angle);
    }
  }
}

void CpuBackend::rms_norm(const Tensor& input, const Tensor& weight, float epsilon,
                          const Tensor& output) {
  const auto kernel = kernels_.rms_norm[index_of(output.dtype)];
#pragma omp parallel for schedule(static) num_threads(threads_for(input.rows, input.cols))
  for (std::int32_t i = 0; i < input.rows; ++i) {
    kernel(input.row<float>(i), weight.row<float>(0), input.cols, epsilon, row_of(output, i));
  }
}

void CpuBackend::matmul(const Tensor& input, const Matrix& weight, const Tensor& output) {
  multiply(input, weight, output, false);
}

void CpuBackend::matmul_add(const Tensor& input, const Matrix& weight, const Tensor& sum) {
  multiply(input, weight, sum, true);
}

void CpuBackend::multiply(const Tensor& input, const Matrix& weight, const Tensor& output,
                          bool accumulate) {
  if (const auto* matrix = dynamic_cast<const Int8Matrix*>(&weight)) {
    int8_gemm_.run(input, *matrix, nullptr, output, accumulate, num_threads_);
  } else {
    gemm_.run(input, static_cast<const PackedMatrix&>(weight), output, accumulate);
  }
}

std::vector<std::string> CpuBackend::gemm_implementations() const {
  std::vector<std::string> lines = gemm_.implementations();
  if (dtype_ == DType::kI8) lines.push_back(int8_gemm_.implementation());
  return lines;
}

void CpuBackend::rotate_and_store(const Tensor& qkv, const Tensor& rotations, const KvCache& cache,
                                  std::int32_t layer) {
  const KvCacheShape& shape = cache.shape();
  const auto rotate = kernels_.rotate[index_of(qkv.dtype)];
  const auto store = kernels_.store_kv[index_of(qkv.dtype)][index_of(shape.dtype)];
  const std::int64_t head_bytes = std::int64_t{heads_.head_dim} * dtype_bytes(qkv.dtype);
  const std::int64_t kv_bytes = dtype_bytes(shape.dtype);
#pragma omp parallel for schedule(static) num_threads(threads_for(qkv.rows, 2 * qkv.cols))
  for (std::int32_t i = 0; i < qkv.rows; ++i) {
    const float* rotation = rotations.row<float>(i);
    std::byte* row = row_of(qkv, i);
    rotate(row, heads_.num_heads, heads_.head_dim, rotation);
    const std::int32_t slot = batch_->slot_mapping[static_cast<std::size_t>(i)];
    const std::int32_t block = slot / shape.block_size_tokens;
    const std::int32_t in_block = slot % shape.block_size_tokens;
    for (std::int32_t head = 0; head < heads_.num_kv_heads; ++head) {
      const auto group = [&](std::int32_t which) {
        return cache.layer(layer) + kv_group_index(block, which, head, in_block, shape.num_kv_heads,
                                                   shape.block_size_tokens, shape.head_dim) *
                                        kv_bytes;
      };
      const std::byte* key = row + (heads_.num_heads + head) * head_bytes;
      store(key, key + heads_.num_kv_heads * head_bytes, heads_.head_dim, rotation,
            in_block % kKvGroupTokens, group(0), group(1));
    }
  }
}

void CpuBackend::attention(const Tensor& qkv, const KvCache& cache, std::int32_t layer, float scale,
                           const Tensor& output) {
  const KvCacheShape& shape = cache.shape();
  const auto attend = kernels_.attend[index_of(qkv.dtype)][index_of(shape.dtype)];
  const std::int32_t group = heads_.num_heads / heads_.num_kv_heads;
  const std::int64_t element = dtype_bytes(qkv.dtype);
  const auto num_tiles = static_cast<std::int64_t>(tiles_.size());
#pragma omp parallel num_threads(num_tiles > 1 ? num_threads_ : 1)
  {
    AttentionTask task;
    task.query_stride = qkv.cols;
    task.output_stride = output.cols;
    task.layer = cache.layer(layer);
    task.group_heads = group;
    task.num_kv_heads = heads_.num_kv_heads;
    task.head_dim = heads_.head_dim;
    task.block_size_tokens = shape.block_size_tokens;
    task.scale = scale;
    task.scratch = static_cast<float*>(scratch_->data()) +
                   scratch_floats_ * static_cast<std::size_t>(omp_get_thread_num());
    // Tiles differ in the number of keys they see, so threads take the next one when free. The
    // dearest come first: the last tiles of a sequence see most.
#pragma omp for schedule(dynamic)
    for (std::int64_t i = num_tiles - 1; i >= 0; --i) {
      const AttentionTile& tile = tiles_[static_cast<std::size_t>(i)];
      const std::int64_t first_col = std::int64_t{tile.kv_head} * group * heads_.head_dim;
      task.queries = row_of(qkv, tile.first_row) + first_col * element;
      task.output = row_of(output, tile.first_row) + first_col * element;
      task.block_table =
          batch_->block_tables.data() + std::int64_t{tile.sequence} * batch_->max_blocks;
      task.num_queries = tile.num_rows;
      task.first_position = tile.first_position;
      task.kv_head = tile.kv_head;
      attend(task);
    }
  }
}

void CpuBackend::silu_mul(const Tensor& gate_up, const Tensor& output) {
  const auto kernel = kernels_.silu_mul[index_of(output.dtype)];
#pragma omp parallel for schedule(static) num_threads(threads_for(output.rows, 4 * output.cols))
  for (std::int32_t i = 0; i < output.rows; ++i) {
    kernel(row_of(gate_up, i), output.cols, row_of(output, i));
  }
}

void CpuBackend::gather_logits_rows(const Tensor& input, const Tensor& output) {
  for (std::int32_t i = 0; i < output.rows; ++i) {
    const std::int32_t row = batch_->logits_rows[static_cast<std::size_t>(i)];
    std::memcpy(output.row<float>(i), input.row<float>(row), output.row_bytes());
  }
}

}  // namespace batchmill
