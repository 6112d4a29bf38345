// CpuBackend's operations on the cache of keys and values.
#include <omp.h>

#include <algorithm>
#include <cstring>

#include "engine/cpu/cpu_backend.h"
#include "engine/cpu/kv_layout.h"

namespace batchmill {

void CpuBackend::plan_attention() {
  tiles_.clear();
  if (heads_.num_kv_heads == 0) return;  // latent attention
  const std::int32_t group = heads_.num_heads / heads_.num_kv_heads;
  const std::int32_t tile_rows = attention_tile_queries(group);
  const std::size_t floats = attention_scratch_floats(group, heads_.head_dim);
  if (floats > scratch_floats_) {
    scratch_ = allocate(floats * static_cast<std::size_t>(num_threads_) * sizeof(float));
    scratch_floats_ = floats;
  }
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
      if (shape.latent_dim > 0) {
        std::memcpy(cache.layer(l) + shape.layer_block_bytes() * copy.destination,
                    cache.layer(l) + shape.layer_block_bytes() * copy.source,
                    static_cast<std::size_t>(copy.num_tokens) * shape.latent_dim * element);
        continue;
      }
      for (std::int32_t which = 0; which < 2; ++which) {
        for (std::int32_t head = 0; head < shape.num_kv_heads; ++head) {
          std::memcpy(group_address(cache.layer(l), copy.destination, which, head),
                      group_address(cache.layer(l), copy.source, which, head), bytes);
        }
      }
    }
  }
}

void CpuBackend::rotate_and_store(const Tensor& qkv, const HeadNorms& norms,
                                  const Tensor& rotations, const KvCache& cache,
                                  std::int32_t layer) {
  const KvCacheShape& shape = cache.shape();
  const auto norm_heads = kernels_.norm_heads[index_of(qkv.dtype)];
  const auto rotate = kernels_.rotate[index_of(qkv.dtype)];
  const auto store = kernels_.store_kv[index_of(qkv.dtype)][index_of(shape.dtype)];
  const std::int64_t head_bytes = std::int64_t{heads_.head_dim} * dtype_bytes(qkv.dtype);
  const std::int64_t kv_bytes = dtype_bytes(shape.dtype);
#pragma omp parallel for schedule(static) num_threads(threads_for(qkv.rows, 2 * qkv.cols))
  for (std::int32_t i = 0; i < qkv.rows; ++i) {
    std::byte* row = row_of(qkv, i);
    if (norms.query.data != nullptr) {
      norm_heads(row, heads_.num_heads, heads_.head_dim, norms.query.row<float>(0), norms.epsilon);
      norm_heads(row + heads_.num_heads * head_bytes, heads_.num_kv_heads, heads_.head_dim,
                 norms.key.row<float>(0), norms.epsilon);
    }
    const float* rotation = no_rotation_.data();
    if (rotations.data != nullptr) {
      rotation = rotations.row<float>(i);
      rotate(row, heads_.num_heads, heads_.head_dim, rotation);
    }
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

void CpuBackend::attention(const Tensor& qkv, const KvCache& cache, std::int32_t layer,
                           const AttentionRule& rule, const Tensor& output) {
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
    task.scale = rule.scale;
    task.window_tokens = rule.window_tokens;
    task.causal = rule.causal;
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
      task.num_keys = rule.causal ? tile.first_position + tile.num_rows
                                  : batch_->context_lens[static_cast<std::size_t>(tile.sequence)];
      task.kv_head = tile.kv_head;
      attend(task);
    }
  }
}

}  // namespace batchmill
