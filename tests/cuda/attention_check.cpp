#include "cuda/attention_kernels.h"

#include <algorithm>
#include <cmath>

#include "tests/cuda/check.h"
#include "tests/cuda/paged_cache.h"

namespace batchmill::testing {
namespace {

struct Rule {
  int window_tokens = 0;
  bool causal = true;
};

AttentionRows rows_of(const PagedCache& paged, const Rule& rule) {
  AttentionRows rows{paged.cu_seqlens, paged.context_lens, paged.shape.heads / paged.shape.kv_heads,
                     rule.window_tokens, rule.causal};
  rows.block_tables = paged.block_tables;
  rows.max_blocks = paged.table_stride;
  rows.block_tokens = 1 << paged.shape.block_shift;
  return rows;
}

// The output's bits.
std::vector<std::uint16_t> attend(Check& check, const PagedCache& paged, const AttentionPlan& plan,
                                  const Rule& rule) {
  const CacheShape& shape = paged.shape;
  const DeviceArray<std::uint16_t> qkv(&check, paged.qkv);
  const DeviceArray<std::uint16_t> cache(&check, paged.cache);
  const DeviceArray<std::int32_t> tables(&check, paged.block_tables);
  std::vector<std::byte> packed(plan.packed_bytes());
  plan.pack(packed.data());
  const DeviceArray<std::byte> device_plan(&check, packed);
  const auto partial_rows = static_cast<std::size_t>(plan.num_partial_rows() * shape.kv_heads);
  const DeviceArray<float> partial_outputs(&check,
                                           partial_rows * static_cast<std::size_t>(shape.dim));
  const DeviceArray<float> partial_sums(&check, partial_rows * 2);
  const std::size_t outputs = static_cast<std::size_t>(paged.cu_seqlens.back()) *
                              static_cast<std::size_t>(shape.heads * shape.dim);
  const DeviceArray<std::uint16_t> output(&check, outputs);

  AttentionArguments arguments{};
  arguments.qkv = qkv.data();
  arguments.cache = cache.data();
  arguments.block_tables = tables.data();
  arguments.output = output.data();
  arguments.plan = device_plan.data();
  arguments.partial_outputs = partial_outputs.data();
  arguments.partial_sums = partial_sums.data();
  arguments.table_stride = paged.table_stride;
  arguments.block_shift = shape.block_shift;
  arguments.heads = shape.heads;
  arguments.kv_heads = shape.kv_heads;
  arguments.dim = shape.dim;
  arguments.scale = 1.0f / std::sqrt(static_cast<float>(shape.dim));
  arguments.window_tokens = rule.window_tokens;
  arguments.causal = rule.causal;
  // Fewer blocks than items: each has several.
  launch_attention(arguments, {plan.wide().empty() ? 0 : 2, plan.narrow().empty() ? 0 : 3, 2},
                   check.stream());
  return output.read();
}

void check_against_reference(Check& check, const PagedCache& paged, const Rule& rule,
                             const std::vector<std::uint16_t>& output) {
  const double scale = 1.0f / std::sqrt(static_cast<float>(paged.shape.dim));
  check.expect_near("output", float_of(output),
                    paged.attend(scale, rule.window_tokens, rule.causal), 0.02);
}

void check_attention(Check& check, const CacheShape& shape, const std::vector<Span>& spans,
                     const Rule& rule = {}) {
  const PagedCache paged(&check, shape, spans);
  AttentionPlan plan;
  plan.make(rows_of(paged, rule));
  check_against_reference(check, paged, rule, attend(check, paged, plan, rule));
}

// Sequences `members` have their first `tokens` in the first one's blocks.
struct Shared {
  std::vector<std::size_t> members;
  int tokens;
};

// With shared keys and without, to the bit; `saved`: keys that were not read once more.
void check_shared(Check& check, const CacheShape& shape, const std::vector<Span>& spans,
                  const std::vector<Shared>& groups, std::int64_t saved, const Rule& rule = {}) {
  PagedCache paged(&check, shape, spans);
  const auto stride = static_cast<std::size_t>(paged.table_stride);
  for (const Shared& group : groups) {
    for (const std::size_t member : group.members) {
      const auto from =
          paged.block_tables.begin() + static_cast<std::ptrdiff_t>(group.members.front() * stride);
      std::copy_n(from, group.tokens >> shape.block_shift,
                  paged.block_tables.begin() + static_cast<std::ptrdiff_t>(member * stride));
    }
  }
  AttentionPlan plan;
  plan.make(rows_of(paged, rule));
  check.expect(
      plan.num_shared_keys() == saved,
      std::to_string(plan.num_shared_keys()) + " keys are shared, not " + std::to_string(saved));
  const std::vector<std::uint16_t> output = attend(check, paged, plan, rule);
  check_against_reference(check, paged, rule, output);
  AttentionRows alone = rows_of(paged, rule);
  alone.block_tables = {};
  plan.make(alone);
  check.expect(plan.num_shared_keys() == 0, "keys are shared without tables");
  check.expect(attend(check, paged, plan, rule) == output, "sharing changes the bits");
}

}  // namespace

KERNEL_CHECK(attention_of_decodes) {
  check_attention(check, {4, 4, 64, 4}, {{1, 1}, {17, 1}, {100, 1}});
}
KERNEL_CHECK(attention_of_grouped_decodes) {
  check_attention(check, {14, 2, 64, 4}, {{33, 1}, {64, 1}});
  check_attention(check, {8, 2, 128, 5}, {{70, 1}, {5, 1}});
}
KERNEL_CHECK(attention_of_decodes_with_split_keys) {
  check_attention(check, {4, 1, 32, 4}, {{300, 1}, {256, 1}, {577, 1}});
}
KERNEL_CHECK(attention_of_decodes_with_shared_keys) {
  // Three of one group in a tile of four, one that shares nothing, two of another group.
  check_shared(check, {4, 1, 32, 4}, {{300, 1}, {420, 1}, {700, 1}, {90, 1}, {600, 1}, {513, 1}},
               {{{0, 1, 2}, 288}, {{4, 5}, 512}}, 2 * 256 + 512);
  // Six in tiles of four; blocks of 32 tokens; two kv heads.
  check_shared(check, {8, 2, 64, 5}, {{530, 1}, {531, 1}, {532, 1}, {600, 1}, {540, 1}, {529, 1}},
               {{{0, 1, 2, 3, 4, 5}, 512}}, 4 * 512);
  // A sequence's last key is its own: 256 tokens share none.
  check_shared(check, {4, 1, 32, 4}, {{256, 1}, {256, 1}}, {{{0, 1}, 256}}, 0);
  // More sequences with fewer keys, or two with many.
  check_shared(check, {2, 1, 16, 4}, {{1100, 1}, {1101, 1}, {1102, 1}},
               {{{0, 1, 2}, 256}, {{0, 1}, 1024}}, 1024);
}
KERNEL_CHECK(attention_with_shared_keys_beside_chunks) {
  check_shared(check, {4, 1, 32, 4}, {{300, 1}, {310, 1}, {310, 20}, {300, 1}},
               {{{0, 1, 2, 3}, 272}}, 256);
  check_shared(check, {4, 1, 32, 4}, {{300, 1}, {310, 1}}, {{{0, 1}, 272}}, 0, {40, true});
}
KERNEL_CHECK(attention_of_prefills) {
  check_attention(check, {7, 1, 64, 4}, {{50, 50}, {9, 9}});
  check_attention(check, {4, 2, 16, 4}, {{130, 130}});
}
KERNEL_CHECK(attention_of_chunks_beside_decodes) {
  check_attention(check, {4, 1, 128, 5}, {{90, 20}, {67, 1}, {33, 3}});
}
KERNEL_CHECK(attention_of_wide_heads) {
  check_attention(check, {2, 1, 256, 4}, {{40, 40}, {70, 1}});
}
KERNEL_CHECK(attention_in_windows) {
  check_attention(check, {4, 1, 32, 4}, {{150, 100}, {150, 1}, {330, 1}}, {24, true});
}
KERNEL_CHECK(attention_of_encoders) {
  check_attention(check, {2, 2, 16, 4}, {{75, 75}, {3, 3}}, {0, false});
}
KERNEL_CHECK(attention_with_split_keys_of_a_chunk) {
  check_attention(check, {1, 1, 16, 6}, {{4120, 20}});
}

}  // namespace batchmill::testing
