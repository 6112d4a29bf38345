// CpuBackend's operations on the cache of keys and values.
#include <algorithm>
#include <array>
#include <atomic>
#include <compare>
#include <cstring>

#include "engine/cpu/cpu_backend.h"
#include "engine/cpu/kv_layout.h"

namespace batchmill {

namespace {

// Sequences that share fewer keys are not worth a common task.
constexpr std::int32_t kMinSharedTokens = 128;
constexpr std::int32_t kTilesPerThread = 4;

}  // namespace

void CpuBackend::plan_attention(std::int32_t block_size_tokens) {
  spans_.clear();
  tiles_.clear();
  const std::int32_t group = heads_.num_heads / heads_.num_kv_heads;
  const std::int32_t tile_queries = attention_tile_queries(group);
  const std::size_t floats = attention_scratch_floats(group, heads_.head_dim);
  if (floats > scratch_floats_) {
    scratch_ = allocate(floats * static_cast<std::size_t>(num_threads_) * sizeof(float));
    scratch_floats_ = floats;
  }
  const auto first_row = [&](std::int32_t s) {
    return batch_->cu_seqlens[static_cast<std::size_t>(s)];
  };
  // Step 1: the decodes, those that begin with the same blocks side by side.
  for (std::int32_t s = 0; s < batch_->num_seqs(); ++s) {
    if (first_row(s + 1) - first_row(s) != 1) continue;
    spans_.push_back({s, first_row(s), 1, batch_->context_lens[static_cast<std::size_t>(s)] - 1});
  }
  const auto table = [&](const AttentionSpan& span) {
    return batch_->block_tables.data() + std::int64_t{span.sequence} * batch_->max_blocks;
  };
  std::sort(spans_.begin(), spans_.end(), [&](const AttentionSpan& a, const AttentionSpan& b) {
    const auto order = std::lexicographical_compare_three_way(
        table(a), table(a) + batch_->max_blocks, table(b), table(b) + batch_->max_blocks);
    return order != 0 ? order < 0 : a.sequence < b.sequence;
  });
  const std::int32_t shared_blocks = (kMinSharedTokens - 1) / block_size_tokens + 1;
  const auto share = [&](const AttentionSpan& a, const AttentionSpan& b) {
    return std::min(a.first_position, b.first_position) >= kMinSharedTokens &&
           std::equal(table(a), table(a) + shared_blocks, table(b));
  };
  const auto num_decodes = static_cast<std::int32_t>(spans_.size());
  // Threads get several tiles each, if there are so many sequences.
  const std::int32_t most = std::clamp(
      num_decodes * heads_.num_kv_heads / (kTilesPerThread * num_threads_), 1, tile_queries);
  for (std::int32_t begin = 0; begin < num_decodes;) {
    std::int32_t end = begin + 1;
    while (end < num_decodes && end - begin < most &&
           share(spans_[static_cast<std::size_t>(begin)], spans_[static_cast<std::size_t>(end)])) {
      ++end;
    }
    add_tiles(begin, end - begin);
    begin = end;
  }
  // Step 2: chunks of prefill, cut into tiles.
  for (std::int32_t s = 0; s < batch_->num_seqs(); ++s) {
    const std::int32_t begin = first_row(s);
    const std::int32_t end = first_row(s + 1);
    if (end - begin == 1) continue;
    const std::int32_t context = batch_->context_lens[static_cast<std::size_t>(s)];
    for (std::int32_t row = begin; row < end; row += tile_queries) {
      spans_.push_back({s, row, std::min(tile_queries, end - row), context - (end - row)});
      add_tiles(static_cast<std::int32_t>(spans_.size()) - 1, 1);
    }
  }
}

void CpuBackend::add_tiles(std::int32_t first_span, std::int32_t num_spans) {
  for (std::int32_t head = 0; head < heads_.num_kv_heads; ++head) {
    tiles_.push_back({head, first_span, num_spans});
  }
}

void CpuBackend::copy_blocks(const KvCache& cache) {
  const KvCacheShape& shape = cache.shape();
  const auto group_address = [&](std::byte* layer, BlockId block, std::int32_t which,
                                 std::int32_t head) {
    return layer + kv_group_offset(block, which, head, 0, shape.num_kv_heads,
                                   shape.block_size_tokens, shape.token_bytes());
  };
  for (const BlockCopy& copy : batch_->copies) {
    // Whole groups: what lies behind the copied tokens is unused in both blocks.
    const std::int32_t tokens =
        (copy.num_tokens + kKvGroupTokens - 1) / kKvGroupTokens * kKvGroupTokens;
    const auto bytes =
        static_cast<std::size_t>(tokens) * static_cast<std::size_t>(shape.token_bytes());
    for (std::int32_t l = 0; l < shape.num_layers; ++l) {
      if (shape.latent_dim > 0) {
        std::memcpy(cache.layer(l) + shape.layer_block_bytes() * copy.destination,
                    cache.layer(l) + shape.layer_block_bytes() * copy.source,
                    static_cast<std::size_t>(copy.num_tokens) *
                        static_cast<std::size_t>(shape.latent_dim) *
                        static_cast<std::size_t>(dtype_bytes(shape.dtype)));
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
  const KvCacheShape shape = cache.shape();
  std::byte* const memory = cache.layer(layer);
  const auto norm_heads = kernels_.norm_heads[index_of(qkv.dtype)];
  const auto rotate = kernels_.rotate[index_of(qkv.dtype)];
  const auto store = kernels_.store_kv[index_of(qkv.dtype)][index_of(shape.dtype)];
  const std::int64_t head_bytes = std::int64_t{heads_.head_dim} * dtype_bytes(qkv.dtype);
  const auto vector_of = [](const Tensor& tensor) {
    return tensor.data == nullptr ? nullptr : tensor.row<float>(0);
  };
  const float* query_norm = vector_of(norms.query);
  const float* key_norm = vector_of(norms.key);
  const float* key_offset = vector_of(norms.key_offset);
  const float epsilon = norms.epsilon;
  divide_rows(qkv.rows, 2 * qkv.cols, [=, this](std::int32_t i) {
    std::byte* row = row_of(qkv, i);
    if (query_norm != nullptr) {
      norm_heads(row, heads_.num_heads, heads_.head_dim, query_norm, epsilon);
      norm_heads(row + heads_.num_heads * head_bytes, heads_.num_kv_heads, heads_.head_dim,
                 key_norm, epsilon);
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
        return memory + kv_group_offset(block, which, head, in_block, shape.num_kv_heads,
                                        shape.block_size_tokens, shape.token_bytes());
      };
      const std::byte* key = row + (heads_.num_heads + head) * head_bytes;
      store(key, key + heads_.num_kv_heads * head_bytes, heads_.head_dim, rotation,
            key_offset == nullptr ? nullptr : key_offset + head * heads_.head_dim,
            in_block % kKvGroupTokens, group(0), group(1));
    }
  });
}

void CpuBackend::attention(const Tensor& qkv, const KvCache& cache, std::int32_t layer,
                           const AttentionRule& rule, const Tensor& output) {
  const KvCacheShape& shape = cache.shape();
  finish();
  if (!attention_planned_) {
    plan_attention(shape.block_size_tokens);
    attention_planned_ = true;
  }
  const auto attend = kernels_.attend[index_of(qkv.dtype)][index_of(shape.dtype)];
  const auto num_tiles = static_cast<std::int32_t>(tiles_.size());
  std::atomic<std::int64_t> last_tile{num_tiles - 1};
  team_.run(num_tiles > 1 ? num_threads_ : 1, [&](std::int32_t thread) {
    AttentionTask task;
    task.query_stride = qkv.cols;
    task.output_stride = output.cols;
    task.layer = cache.layer(layer);
    task.group_heads = heads_.num_heads / heads_.num_kv_heads;
    task.num_kv_heads = heads_.num_kv_heads;
    task.head_dim = heads_.head_dim;
    task.block_size_tokens = shape.block_size_tokens;
    task.scale = rule.scale;
    task.window_tokens = rule.window_tokens;
    task.causal = rule.causal;
    task.scratch =
        static_cast<float*>(scratch_->data()) + scratch_floats_ * static_cast<std::size_t>(thread);
    // Tiles differ in the number of keys they see, so threads take the next one when free. The
    // dearest come first: the last tiles of a sequence see most. A thread knows the tile after the
    // current one, so that it need not wait for its memory.
    const auto take = [&] { return last_tile.fetch_sub(1, std::memory_order_relaxed); };
    std::int64_t next = -1;
    for (std::int64_t i = take(); i >= 0; i = next) {
      next = take();
      AttentionPart first;
      task.after = {};
      task.num_next_queries = 0;
      if (next >= 0) {
        const AttentionTile& then = tiles_[static_cast<std::size_t>(next)];
        const AttentionSpan& span = spans_[static_cast<std::size_t>(then.first_span)];
        first = make_part(span, rule);
        if (rule.window_tokens == 0) task.after = {&first, then.kv_head, 0};
        task.next_queries = row_of(qkv, span.first_row) + first_byte(then, qkv.dtype);
        task.num_next_queries = span.num_rows;
      }
      attend_tile(tiles_[static_cast<std::size_t>(i)], qkv, rule, output, &task, attend);
    }
  });
}

bool CpuBackend::has_logits(const AttentionTile& tile) const {
  if (tile.num_spans > 1) return true;  // decodes
  const AttentionSpan& span = spans_[static_cast<std::size_t>(tile.first_span)];
  const auto found = std::ranges::lower_bound(batch_->logits_rows, span.first_row);
  return found != batch_->logits_rows.end() && *found < span.first_row + span.num_rows;
}

std::int64_t CpuBackend::first_byte(const AttentionTile& tile, DType dtype) const {
  const std::int32_t group = heads_.num_heads / heads_.num_kv_heads;
  return std::int64_t{tile.kv_head} * group * heads_.head_dim * dtype_bytes(dtype);
}

AttentionPart CpuBackend::make_part(const AttentionSpan& span, const AttentionRule& rule) const {
  AttentionPart part;
  part.block_table = batch_->block_tables.data() + std::int64_t{span.sequence} * batch_->max_blocks;
  part.num_queries = span.num_rows;
  part.first_position = span.first_position;
  part.num_keys = rule.causal ? span.first_position + span.num_rows
                              : batch_->context_lens[static_cast<std::size_t>(span.sequence)];
  return part;
}

void CpuBackend::attend_tile(const AttentionTile& tile, const Tensor& qkv,
                             const AttentionRule& rule, const Tensor& output, AttentionTask* task,
                             void (*attend)(const AttentionTask& task)) const {
  if (rule.only_logits_rows && !has_logits(tile)) return;
  std::array<AttentionPart, kAttentionTileRows> parts;
  const std::int64_t first = first_byte(tile, qkv.dtype);
  for (std::int32_t i = 0; i < tile.num_spans; ++i) {
    const AttentionSpan& span = spans_[static_cast<std::size_t>(tile.first_span + i)];
    AttentionPart& part = parts[static_cast<std::size_t>(i)];
    part = make_part(span, rule);
    part.queries = row_of(qkv, span.first_row) + first;
    part.output = row_of(output, span.first_row) + first;
  }
  task->kv_head = tile.kv_head;
  // A window begins elsewhere in each sequence.
  const bool together = rule.causal && rule.window_tokens == 0;
  task->num_parts = together ? tile.num_spans : 1;
  const NextKeys after = task->after;
  for (std::int32_t i = 0; i < tile.num_spans; i += task->num_parts) {
    task->after = i + task->num_parts < tile.num_spans ? NextKeys{} : after;
    task->parts = parts.data() + i;
    attend(*task);
  }
}

}  // namespace batchmill
