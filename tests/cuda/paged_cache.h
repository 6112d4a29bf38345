// A paged cache of keys and values as a step leaves it: blocks in a random order, NaNs in slots
// that nobody uses, and attention over it in float64.
#pragma once

#include <cstdint>
#include <vector>

#include "tests/cuda/check.h"

namespace batchmill::testing {

struct CacheShape {
  int heads = 1;
  int kv_heads = 1;
  int dim = 64;
  int block_shift = 4;
};

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
  std::vector<std::uint16_t> cache;  // [block][K, V][kv head][slot][dim]
  std::vector<std::uint16_t> qkv;  // [rows, (heads + 2 kv heads) × dim], NaN beside the queries

 private:
  std::size_t offset(std::size_t sequence, int position, int which, int kv_head) const;
};

}  // namespace batchmill::testing
