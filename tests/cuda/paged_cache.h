// A paged cache of keys and values as a step leaves it: blocks in a random order, NaNs in slots
// that nobody uses (of bytes in their scales), and attention over it in float64.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/tensor.h"
#include "tests/cuda/check.h"

namespace batchmill::testing {

struct CacheShape {
  int heads = 1;
  int kv_heads = 1;
  int dim = 64;
  int block_shift = 4;
  DType kv = DType::kBF16;
};

// What a byte of a cache in int8 or FP8 (e4m3) stands for.
double value_of(DType kv, std::uint8_t byte);

// Where element i of a row of such a cache lies in it (cuda/kv_bytes.h).
constexpr std::size_t byte_of_key(std::size_t i) { return i / 16 * 16 + i % 8 * 2 + i % 16 / 8; }

// Sequences with `context` tokens, of which the last `rows` are this step's queries.
struct Span {
  int context;
  int rows;
};

class PagedCache {
 public:
  PagedCache(Check* check, const CacheShape& shape, const std::vector<Span>& spans);

  // Attention of all query rows [rows, heads × dim]; a row sees what the rule says.
  std::vector<double> attend(double scale, int window_tokens, bool causal) const;

  CacheShape shape;
  std::vector<Span> spans;
  std::vector<std::int32_t> cu_seqlens;
  std::vector<std::int32_t> context_lens;
  std::vector<std::int32_t> block_tables;  // [sequences, table_stride]
  int table_stride = 0;
  int num_blocks = 0;
  std::vector<std::uint8_t> cache;  // [block][K, V][kv head][slot][dim], of bytes then scales
  std::vector<std::uint16_t> qkv;  // [rows, (heads + 2 kv heads) × dim], NaN beside the queries

 private:
  // First bytes of a row, and of its scale.
  struct Place {
    std::size_t row;
    std::size_t scale;
  };
  Place place(std::size_t sequence, int position, int which, int kv_head) const;
  void fill_row(Check* check, int which, const Place& place);
  std::vector<double> read_row(int which, const Place& place) const;
};

}  // namespace batchmill::testing
