#include "cuda/attention_kernels.h"

#include <cmath>

#include "tests/cuda/check.h"
#include "tests/cuda/paged_cache.h"

namespace batchmill::testing {
namespace {

struct Rule {
  int window_tokens = 0;
  bool causal = true;
};

void check_attention(Check& check, const CacheShape& shape, const std::vector<Span>& spans,
                     const Rule& rule = {}) {
  const PagedCache paged(&check, shape, spans);
  AttentionPlan plan;
  plan.make({paged.cu_seqlens, paged.context_lens, shape.heads / shape.kv_heads, rule.window_tokens,
             rule.causal});

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
  check.expect_near("output", float_of(output.read()),
                    paged.attend(arguments.scale, rule.window_tokens, rule.causal), 0.02);
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
