#include "cuda/attention_kernels.h"

#include <algorithm>
#include <cmath>

#include "cuda/attention_shapes.h"
#include "tests/cuda/check.h"
#include "tests/cuda/paged_cache.h"

namespace batchmill::testing {
namespace {

struct Rule {
  int window_tokens = 0;
  bool causal = true;
  float sharpness = 1;  // multiplies scores: few keys count, wherever they are

  float scale(int dim) const { return sharpness / std::sqrt(static_cast<float>(dim)); }
};

AttentionRows rows_of(const PagedCache& paged, const Rule& rule) {
  AttentionRows rows{paged.cu_seqlens, paged.context_lens, paged.shape.heads / paged.shape.kv_heads,
                     rule.window_tokens, rule.causal};
  rows.block_tables = paged.block_tables;
  rows.max_blocks = paged.table_stride;
  rows.block_tokens = 1 << paged.shape.block_shift;
  rows.kv_heads = paged.shape.kv_heads;
  return rows;
}

int shared_bytes() {
  static const int bytes = device_facts(0).shared_bytes;
  return bytes;
}

// Models with other heads are refused.
bool has_kernels(const CacheShape& shape) {
  return least_attention_shared_bytes(shape.dim, shape.kv) <= shared_bytes();
}

// The output's bits.
std::vector<std::uint16_t> attend(Check& check, const PagedCache& paged, const AttentionPlan& plan,
                                  const Rule& rule) {
  const CacheShape& shape = paged.shape;
  const DeviceArray<std::uint16_t> qkv(&check, paged.qkv);
  const DeviceArray<std::uint8_t> cache(&check, paged.cache);
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
  arguments.kv = shape.kv;
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
  arguments.scale = rule.scale(shape.dim);
  arguments.window_tokens = rule.window_tokens;
  arguments.causal = rule.causal;
  // Fewer blocks than items: each has several.
  const AttentionGrid grid = {plan.wide().empty() ? 0 : 2, plan.narrow().empty() ? 0 : 3, 2,
                              shared_bytes()};
  launch_attention(arguments, grid, check.stream());
  std::vector<std::uint16_t> result = output.read();
  // As the next layer of a step, with the same plan.
  const DeviceArray<std::uint16_t> again(&check, outputs);
  arguments.output = again.data();
  launch_attention(arguments, grid, check.stream());
  check.expect(again.read() == result, "a second launch with the same plan gives other bits");
  return result;
}

void check_against_reference(Check& check, const PagedCache& paged, const Rule& rule,
                             const std::vector<std::uint16_t>& output) {
  check.expect_near("output", float_of(output),
                    paged.attend(rule.scale(paged.shape.dim), rule.window_tokens, rule.causal),
                    0.02);
}

void check_attention(Check& check, const CacheShape& shape, const std::vector<Span>& spans,
                     const Rule& rule = {}) {
  if (!has_kernels(shape)) return;
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
  if (!has_kernels(shape)) return;
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
  check_attention(check, {2, 2, 64, 4}, {{600, 1}, {300, 1}, {20, 1}, {257, 1}});
  check_attention(check, {8, 2, 128, 5}, {{520, 1}, {70, 1}, {300, 1}});
  check_attention(check, {2, 1, 256, 4}, {{300, 1}, {260, 1}});
  // More splits than a warp has lanes.
  check_attention(check, {4, 1, 16, 6}, {{12400, 1}}, {0, true, 4});
}
KERNEL_CHECK(attention_of_few_rows_with_split_keys) {
  check_attention(check, {4, 1, 32, 4}, {{300, 3}, {40, 2}, {530, 4}});
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
KERNEL_CHECK(attention_of_long_prefills) {
  check_attention(check, {4, 1, 128, 4}, {{210, 210}, {300, 60}});
  check_attention(check, {8, 1, 64, 5}, {{150, 150}});
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
  check_attention(check, {4, 1, 64, 5}, {{1100, 40}, {50, 50}});
  check_attention(check, {2, 1, 128, 5}, {{1050, 30}});
}
KERNEL_CHECK(attention_beside_other_sequences) {
  for (const int rows : {1, 3, 40}) {
    const PagedCache paged(&check, {4, 1, 32, 4}, {{600, rows}, {1030, 1}, {1200, 90}, {30, 3}});
    AttentionPlan plan;
    plan.make(rows_of(paged, {}));
    std::vector<std::uint16_t> beside = attend(check, paged, plan, {});
    AttentionRows alone = rows_of(paged, {});
    alone.cu_seqlens = alone.cu_seqlens.first(2);
    alone.context_lens = alone.context_lens.first(1);
    plan.make(alone);
    std::vector<std::uint16_t> own = attend(check, paged, plan, {});
    own.resize(static_cast<std::size_t>(rows * 4 * 32));
    beside.resize(own.size());
    check.expect(own == beside, "others change the bits of a sequence");
  }
}
// In parts of few partial results, launched one after the other, to the bit.
KERNEL_CHECK(attention_in_parts_with_split_keys) {
  const CacheShape shape{8, 2, 32, 4};
  const PagedCache paged(&check, shape,
                         {{700, 1}, {300, 1}, {5, 1}, {2100, 40}, {600, 3}, {1200, 33}, {513, 1}});
  const AttentionRows rows = rows_of(paged, {});
  AttentionPlan whole;
  check.expect(whole.make(rows) == paged.spans.size(), "sequences are left out");
  const std::vector<std::uint16_t> expected = attend(check, paged, whole, {});
  std::vector<std::uint16_t> got(expected.size());
  int num_parts = 0;
  for (std::size_t first = 0; first < paged.spans.size(); ++num_parts) {
    AttentionPlan part;
    const std::size_t end = part.make(rows, first, 30);
    check.expect(part.num_partial_rows() <= 30 || end == first + 1, "a part is too large");
    const std::vector<std::uint16_t> output = attend(check, paged, part, {});
    const std::size_t cols = static_cast<std::size_t>(shape.heads * shape.dim);
    const std::size_t from = static_cast<std::size_t>(paged.cu_seqlens[first]) * cols;
    const std::size_t to = static_cast<std::size_t>(paged.cu_seqlens[end]) * cols;
    std::copy(output.begin() + static_cast<std::ptrdiff_t>(from),
              output.begin() + static_cast<std::ptrdiff_t>(to),
              got.begin() + static_cast<std::ptrdiff_t>(from));
    first = end;
  }
  check.expect(num_parts == 5, std::to_string(num_parts) + " parts");
  check.expect(got == expected, "parts give other bits");
}

// Only bytes are made wide in other ways: what has nothing to do with that is checked in int8.
KERNEL_CHECK(bytes_attended_by_few_rows) {
  for (const DType kv : {DType::kI8, DType::kF8}) {
    check_attention(check, {4, 1, 16, 4, kv}, {{33, 1}, {70, 1}});
    check_attention(check, {4, 4, 32, 2, kv}, {{1, 1}, {17, 1}, {100, 1}});
    check_attention(check, {14, 2, 64, 4, kv}, {{33, 1}, {64, 1}, {90, 2}});
    check_attention(check, {8, 2, 128, 5, kv}, {{70, 1}, {5, 1}});
    check_attention(check, {2, 1, 256, 4, kv}, {{90, 1}, {64, 1}});
  }
  constexpr DType kKv = DType::kI8;
  check_attention(check, {2, 2, 64, 6, kKv}, {{600, 1}, {300, 1}, {20, 1}, {257, 1}});
  check_attention(check, {4, 1, 32, 4, kKv}, {{150, 1}, {330, 1}}, {24, true});
}
KERNEL_CHECK(bytes_attended_by_many_rows) {
  for (const DType kv : {DType::kI8, DType::kF8}) {
    check_attention(check, {4, 2, 16, 4, kv}, {{130, 130}});
    check_attention(check, {4, 1, 32, 4, kv}, {{150, 100}, {75, 75}});
    check_attention(check, {7, 1, 64, 4, kv}, {{50, 50}, {9, 9}, {90, 1}});
    check_attention(check, {4, 1, 128, 5, kv}, {{210, 120}, {100, 33}});
    check_attention(check, {2, 1, 256, 4, kv}, {{70, 40}});
  }
  constexpr DType kKv = DType::kI8;
  check_attention(check, {4, 1, 64, 5, kKv}, {{1100, 40}, {50, 50}});
  check_attention(check, {4, 1, 32, 4, kKv}, {{150, 100}, {150, 1}}, {24, true});
  check_attention(check, {2, 2, 16, 4, kKv}, {{75, 75}, {3, 3}}, {0, false});
}
KERNEL_CHECK(bytes_attended_together) {
  check_shared(check, {8, 2, 64, 5, DType::kI8}, {{530, 1}, {531, 1}, {532, 1}, {600, 1}, {540, 1}},
               {{{0, 1, 2, 3, 4}, 512}}, 3 * 512);
}

// Which heads have kernels on which devices.
KERNEL_CHECK(attention_fits_the_shared_memory_of_devices) {
  const auto stages = [](int dim, DType kv, int limit) {
    return least_attention_shared_bytes(dim, kv) > limit ? 0 : narrow_stages(dim, kv, limit);
  };
  constexpr int kLarge = 227 << 10;
  check.expect(stages(128, DType::kBF16, kSmallSharedBytes) == 2, "heads of 128 on 8.6");
  check.expect(stages(128, DType::kBF16, kMediumSharedBytes) == 3, "heads of 128 on 8.0");
  check.expect(stages(128, DType::kI8, kSmallSharedBytes) == 3, "heads of 128 in int8 on 8.6");
  check.expect(stages(256, DType::kBF16, kSmallSharedBytes) == 0, "heads of 256 on 8.6");
  check.expect(stages(256, DType::kBF16, kMediumSharedBytes) == 2, "heads of 256 on 8.0");
  check.expect(stages(256, DType::kBF16, kLarge) == 3, "heads of 256 on 9.0");
  check.expect(stages(64, DType::kBF16, kSmallSharedBytes) == 5, "heads of 64 on 8.6");
}

KERNEL_CHECK(attention_plans_of_long_prefills) {
  const std::vector<std::int32_t> starts = {0, 2100, 2140};
  const std::vector<std::int32_t> contexts = {6000, 6000};
  AttentionRows rows{starts, contexts};
  rows.group = 4;
  AttentionPlan plan;
  plan.make(rows);
  // 66 tiles whose keys stay together, and two whose keys are in six splits.
  check.expect(plan.wide().size() == 66 + 2 * 6 && plan.wide_combines().size() == 2,
               "keys are not split as they should be");
  const auto length = [](const AttentionItem& item) { return item.key_end - item.key_begin; };
  check.expect(std::is_sorted(plan.wide().begin(), plan.wide().end(),
                              [&](const auto& a, const auto& b) { return length(a) > length(b); }),
               "a long item comes after a short one");
}

}  // namespace batchmill::testing
