#include "tests/cuda/paged_cache.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

namespace batchmill::testing {

double value_of(DType kv, std::uint8_t byte) {
  if (kv == DType::kI8) return static_cast<std::int8_t>(byte);
  const int exponent = byte >> 3 & 15;
  const int mantissa = byte & 7;
  const double magnitude =
      exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
  return byte < 128 ? magnitude : -magnitude;
}

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
  const std::size_t row_bytes = shape.kv == DType::kBF16 ? 2 * dim : dim + 4;
  cache.assign(static_cast<std::size_t>(num_blocks) * 2 * shape.kv_heads * block * row_bytes, 0xFF);
  for (std::size_t s = 0; s < spans.size(); ++s) {
    for (int position = 0; position < spans[s].context; ++position) {
      for (int which = 0; which < 2; ++which) {
        for (int head = 0; head < shape.kv_heads; ++head) {
          fill_row(check, which, place(s, position, which, head));
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

PagedCache::Place PagedCache::place(std::size_t sequence, int position, int which,
                                    int kv_head) const {
  const std::size_t block = std::size_t{1} << shape.block_shift;
  const auto dim = static_cast<std::size_t>(shape.dim);
  const auto slot = static_cast<std::size_t>(position) % block;
  const std::int32_t id = block_tables[sequence * static_cast<std::size_t>(table_stride) +
                                       static_cast<std::size_t>(position) / block];
  const std::size_t part = (static_cast<std::size_t>(id) * 2 + which) * shape.kv_heads + kv_head;
  if (shape.kv == DType::kBF16) return {(part * block + slot) * dim * 2, 0};
  const std::size_t first = part * block * (dim + 4);
  return {first + slot * dim, first + block * dim + slot * 4};
}

// Of about variance 1.
void PagedCache::fill_row(Check* check, int which, const Place& place) {
  const auto dim = static_cast<std::size_t>(shape.dim);
  if (shape.kv == DType::kBF16) {
    const auto values = bf16_of(check->normal(dim));
    std::memcpy(cache.data() + place.row, values.data(), dim * 2);
    return;
  }
  // Values have scales that differ much.
  const float spread = which == 0 ? 1.0f : static_cast<float>(1 + check->random() % 7) / 4.0f;
  const float scale = spread / (shape.kv == DType::kI8 ? 73.0f : 110.0f);
  std::memcpy(cache.data() + place.scale, &scale, sizeof(scale));
  for (std::size_t i = 0; i < dim; ++i) {
    auto byte = static_cast<std::uint8_t>(check->random());
    if (shape.kv == DType::kF8 && byte % 128 == 127) byte = 0;  // stands for no number
    cache[place.row + i] = byte;
  }
}

std::vector<double> PagedCache::read_row(int which, const Place& place) const {
  std::vector<double> values(static_cast<std::size_t>(shape.dim));
  float scale = 0.0f;
  if (shape.kv != DType::kBF16) std::memcpy(&scale, cache.data() + place.scale, sizeof(scale));
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (shape.kv == DType::kBF16) {
      std::uint16_t bits;
      std::memcpy(&bits, cache.data() + place.row + 2 * i, sizeof(bits));
      values[i] = float_of(bits);
    } else {
      values[i] = scale * value_of(shape.kv, cache[place.row + (which == 0 ? byte_of_key(i) : i)]);
    }
  }
  return values;
}

std::vector<double> PagedCache::attend(double scale, int window_tokens, bool causal) const {
  const auto dim = static_cast<std::size_t>(shape.dim);
  const auto heads = static_cast<std::size_t>(shape.heads);
  const std::size_t row_elements = dim * (heads + 2 * static_cast<std::size_t>(shape.kv_heads));
  std::vector<double> output(static_cast<std::size_t>(cu_seqlens.back()) * heads * dim);
  for (std::size_t s = 0; s < spans.size(); ++s) {
    std::vector<std::vector<double>> rows[2];  // K, V of [kv head × position]
    for (int which = 0; which < 2; ++which) {
      for (int head = 0; head < shape.kv_heads; ++head) {
        for (int k = 0; k < spans[s].context; ++k) {
          rows[which].push_back(read_row(which, place(s, k, which, head)));
        }
      }
    }
    for (int i = 0; i < spans[s].rows; ++i) {
      const int position = spans[s].context - spans[s].rows + i;
      const int end = causal ? position + 1 : spans[s].context;
      const int begin = window_tokens > 0 ? std::max(position - window_tokens + 1, 0) : 0;
      const std::size_t row = static_cast<std::size_t>(cu_seqlens[s] + i);
      for (std::size_t h = 0; h < heads; ++h) {
        const int kv_head = static_cast<int>(h) / (shape.heads / shape.kv_heads);
        const auto first = static_cast<std::size_t>(kv_head * spans[s].context);
        std::vector<double> weights;
        for (int k = begin; k < end; ++k) {
          const std::vector<double>& key = rows[0][first + static_cast<std::size_t>(k)];
          double score = 0;
          for (std::size_t d = 0; d < dim; ++d) {
            score += double{float_of(qkv[row * row_elements + h * dim + d])} * key[d];
          }
          weights.push_back(score * scale);
        }
        const double most = *std::max_element(weights.begin(), weights.end());
        double sum = 0;
        for (double& weight : weights) sum += weight = std::exp(weight - most);
        double* target = output.data() + (row * heads + h) * dim;
        for (int k = begin; k < end; ++k) {
          const double share = weights[static_cast<std::size_t>(k - begin)] / sum;
          const std::vector<double>& value = rows[1][first + static_cast<std::size_t>(k)];
          for (std::size_t d = 0; d < dim; ++d) target[d] += share * value[d];
        }
      }
    }
  }
  return output;
}

}  // namespace batchmill::testing
