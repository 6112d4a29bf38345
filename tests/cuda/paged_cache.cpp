#include "tests/cuda/paged_cache.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace batchmill::testing {

PagedCache::PagedCache(Check* check, const CacheShape& cache_shape,
                       const std::vector<Span>& sequence_spans)
    : shape(cache_shape), spans(sequence_spans) {
  const int block = 1 << shape.block_shift;
  cu_seqlens.push_back(0);
  for (const Span& span : spans) {
    const int blocks = (span.context + block - 1) / block;
    table_stride = std::max(table_stride, blocks);
    num_blocks += blocks;
    cu_seqlens.push_back(cu_seqlens.back() + span.rows);
    context_lens.push_back(span.context);
  }
  num_blocks += 3;  // that belong to nobody
  ++table_stride;
  std::vector<std::int32_t> order(static_cast<std::size_t>(num_blocks));
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), check->random);
  const auto stride = static_cast<std::size_t>(table_stride);
  block_tables.assign(spans.size() * stride, -1);
  std::size_t next = 0;
  for (std::size_t s = 0; s < spans.size(); ++s) {
    for (int b = 0; b * block < spans[s].context; ++b) {
      block_tables[s * stride + static_cast<std::size_t>(b)] = order[next++];
    }
  }
  const auto dim = static_cast<std::size_t>(shape.dim);
  cache.assign(static_cast<std::size_t>(num_blocks) * 2 * shape.kv_heads * block * dim, 0x7FFF);
  for (std::size_t s = 0; s < spans.size(); ++s) {
    for (int position = 0; position < spans[s].context; ++position) {
      for (int which = 0; which < 2; ++which) {
        for (int head = 0; head < shape.kv_heads; ++head) {
          const auto values = bf16_of(check->normal(dim));
          std::copy(values.begin(), values.end(),
                    cache.begin() + static_cast<std::ptrdiff_t>(offset(s, position, which, head)));
        }
      }
    }
  }
  const std::size_t row = dim * static_cast<std::size_t>(shape.heads + 2 * shape.kv_heads);
  qkv.assign(static_cast<std::size_t>(cu_seqlens.back()) * row, 0x7FFF);
  for (std::size_t r = 0; r < qkv.size() / row; ++r) {
    const auto values = bf16_of(check->normal(dim * static_cast<std::size_t>(shape.heads)));
    std::copy(values.begin(), values.end(), qkv.begin() + static_cast<std::ptrdiff_t>(r * row));
  }
}

std::size_t PagedCache::offset(std::size_t sequence, int position, int which, int kv_head) const {
  const int block = 1 << shape.block_shift;
  const std::int32_t id = block_tables[sequence * static_cast<std::size_t>(table_stride) +
                                       static_cast<std::size_t>(position / block)];
  return ((static_cast<std::size_t>(id) * 2 + which) * shape.kv_heads + kv_head) * block *
             shape.dim +
         static_cast<std::size_t>(position % block) * shape.dim;
}

std::vector<double> PagedCache::attend(double scale, int window_tokens, bool causal) const {
  const auto dim = static_cast<std::size_t>(shape.dim);
  const auto heads = static_cast<std::size_t>(shape.heads);
  const std::size_t row_elements = dim * (heads + 2 * static_cast<std::size_t>(shape.kv_heads));
  std::vector<double> output(static_cast<std::size_t>(cu_seqlens.back()) * heads * dim);
  for (std::size_t s = 0; s < spans.size(); ++s) {
    for (int i = 0; i < spans[s].rows; ++i) {
      const int position = spans[s].context - spans[s].rows + i;
      const int end = causal ? position + 1 : spans[s].context;
      const int begin = window_tokens > 0 ? std::max(position - window_tokens + 1, 0) : 0;
      const std::size_t row = static_cast<std::size_t>(cu_seqlens[s] + i);
      for (std::size_t h = 0; h < heads; ++h) {
        const int kv_head = static_cast<int>(h) / (shape.heads / shape.kv_heads);
        std::vector<double> weights;
        for (int k = begin; k < end; ++k) {
          double score = 0;
          for (std::size_t d = 0; d < dim; ++d) {
            score += double{float_of(qkv[row * row_elements + h * dim + d])} *
                     float_of(cache[offset(s, k, 0, kv_head) + d]);
          }
          weights.push_back(score * scale);
        }
        const double most = *std::max_element(weights.begin(), weights.end());
        double sum = 0;
        for (double& weight : weights) sum += weight = std::exp(weight - most);
        double* target = output.data() + (row * heads + h) * dim;
        for (int k = begin; k < end; ++k) {
          const double share = weights[static_cast<std::size_t>(k - begin)] / sum;
          for (std::size_t d = 0; d < dim; ++d) {
            target[d] += share * float_of(cache[offset(s, k, 1, kv_head) + d]);
          }
        }
      }
    }
  }
  return output;
}

}  // namespace batchmill::testing
