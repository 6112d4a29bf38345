// The attention kernels of every instruction set against a slow float64 reference, on caches whose
// unused slots hold NaN.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <numeric>
#include <random>
#include <type_traits>
#include <vector>

#include "engine/cpu/cpu_backend.h"
#include "engine/cpu/kv_layout.h"
#include "engine/dequantize.h"

namespace batchmill {
namespace {

struct Shape {
  std::int32_t num_heads;
  std::int32_t num_kv_heads;
  std::int32_t head_dim;
  std::int32_t block_size;
};

// A sequence's context, how many of its last tokens are queries, and how many of its first blocks
// are those of an earlier sequence.
struct Part {
  std::int32_t context;
  std::int32_t queries;
  std::int32_t shared_blocks = 0;
  std::size_t shared_with = 0;
};

void write(void* data, DType dtype, std::int64_t index, float value) {
  if (dtype == DType::kF32) {
    static_cast<float*>(data)[index] = value;
  } else {
    static_cast<std::uint16_t*>(data)[index] = bfloat16_from_float(value);
  }
}

float read(const void* data, DType dtype, std::int64_t index) {
  return dtype == DType::kF32 ? static_cast<const float*>(data)[index]
                              : float_from_bfloat16(static_cast<const std::uint16_t*>(data)[index]);
}

// One layer of random keys and values in blocks of random order, and a batch over them.
class Scene {
 public:
  // `key_bias` is added to one dimension of every key; the cache may take it off again.
  Scene(CpuBackend* backend, const Shape& shape, DType kv_dtype, const std::vector<Part>& parts,
        std::uint32_t seed, InstructionSet set, float key_bias = 0.0f)
      : backend_(*backend),
        shape_(shape),
        kv_dtype_(kv_dtype),
        random_(seed),
        store_(kernels_for(set).store_kv[static_cast<int>(backend->activation_dtype())]
                                        [static_cast<int>(kv_dtype)]),
        key_bias_(key_bias),
        key_offset_(static_cast<std::size_t>(shape.head_dim)) {
    key_offset_[kBiasedDim] = key_bias;
    std::int32_t num_blocks = 3;
    for (const Part& part : parts) num_blocks += blocks_of(part.context);
    cache_ = backend_.make_kv_cache(
        {1, num_blocks, shape.block_size, shape.num_kv_heads, shape.head_dim, kv_dtype});
    // NaN in all types.
    std::memset(cache_->layer(0), 0xff, cache_->shape().bytes());
    written_.resize(static_cast<std::size_t>(num_blocks) * shape.block_size * shape.num_kv_heads *
                    shape.head_dim * 2);
    std::vector<BlockId> free_blocks(static_cast<std::size_t>(num_blocks));
    std::iota(free_blocks.begin(), free_blocks.end(), 0);
    std::shuffle(free_blocks.begin(), free_blocks.end(), random_);
    batch_.cu_seqlens.push_back(0);
    for (const Part& part : parts) {
      batch_.max_blocks = std::max(batch_.max_blocks, blocks_of(part.context));
    }
    for (const Part& part : parts) add(part, &free_blocks);
    qkv_.resize(static_cast<std::size_t>(batch_.num_tokens()) * heads().qkv_cols());
    for (float& value : qkv_) value = normal(1.0f);
  }

  // [rows, heads × D]
  std::vector<float> run(const AttentionRule& rule) { return run(rule, batch_, qkv_); }

  // The same of one sequence that has the step for itself.
  std::vector<float> run_alone(const AttentionRule& rule, std::int32_t sequence) {
    const auto s = static_cast<std::size_t>(sequence);
    const auto begin = static_cast<std::size_t>(batch_.cu_seqlens[s]);
    const auto end = static_cast<std::size_t>(batch_.cu_seqlens[s + 1]);
    const auto part = [](const auto& all, std::size_t from, std::size_t to) {
      return std::decay_t<decltype(all)>(all.begin() + static_cast<std::ptrdiff_t>(from),
                                         all.begin() + static_cast<std::ptrdiff_t>(to));
    };
    Batch alone;
    alone.token_ids = part(batch_.token_ids, begin, end);
    alone.positions = part(batch_.positions, begin, end);
    alone.slot_mapping = part(batch_.slot_mapping, begin, end);
    alone.cu_seqlens = {0, static_cast<std::int32_t>(end - begin)};
    alone.context_lens = {batch_.context_lens[s]};
    alone.max_blocks = batch_.max_blocks;
    const auto width = static_cast<std::size_t>(batch_.max_blocks);
    alone.block_tables = part(batch_.block_tables, s * width, (s + 1) * width);
    const auto cols = static_cast<std::size_t>(heads().qkv_cols());
    return run(rule, alone, part(qkv_, begin * cols, end * cols));
  }

  std::int32_t num_seqs() const { return batch_.num_seqs(); }

  std::vector<double> reference(const AttentionRule& rule) const {
    std::vector<double> result;
    const std::int32_t group = shape_.num_heads / shape_.num_kv_heads;
    for (std::int32_t s = 0; s < batch_.num_seqs(); ++s) {
      const std::int32_t end = batch_.cu_seqlens[static_cast<std::size_t>(s) + 1];
      for (std::int32_t row = batch_.cu_seqlens[static_cast<std::size_t>(s)]; row < end; ++row) {
        const std::int32_t position = batch_.positions[static_cast<std::size_t>(row)];
        const std::int32_t first =
            rule.window_tokens > 0 ? std::max(0, position - rule.window_tokens + 1) : 0;
        const std::int32_t last =
            rule.causal ? position : batch_.context_lens[static_cast<std::size_t>(s)] - 1;
        for (std::int32_t head = 0; head < shape_.num_heads; ++head) {
          std::vector<double> weights;
          for (std::int32_t p = first; p <= last; ++p) {
            double score = 0;
            for (std::int32_t d = 0; d < shape_.head_dim; ++d) {
              score += double{query(row, head, d)} * key_value(0, s, head / group, p, d);
            }
            weights.push_back(score * rule.scale);
          }
          const double largest = *std::max_element(weights.begin(), weights.end());
          double sum = 0;
          for (double& weight : weights) sum += weight = std::exp(weight - largest);
          for (std::int32_t d = 0; d < shape_.head_dim; ++d) {
            double value = 0;
            for (std::int32_t p = first; p <= last; ++p) {
              value += weights[static_cast<std::size_t>(p - first)] *
                       key_value(1, s, head / group, p, d);
            }
            result.push_back(value / sum);
          }
        }
      }
    }
    return result;
  }

 private:
  std::vector<float> run(const AttentionRule& rule, const Batch& batch,
                         const std::vector<float>& qkv) {
    const std::int32_t rows = batch.num_tokens();
    const DType act = backend_.activation_dtype();
    const std::int32_t width = shape_.num_heads * shape_.head_dim;
    auto input = backend_.allocate(qkv.size() * 4);
    auto output = backend_.allocate(static_cast<std::size_t>(rows) * width * 4);
    for (std::size_t i = 0; i < qkv.size(); ++i) {
      write(input->data(), act, static_cast<std::int64_t>(i), qkv[i]);
    }
    backend_.begin_step(batch, heads());
    backend_.attention({input->data(), act, rows, heads().qkv_cols()}, *cache_, 0, rule,
                       {output->data(), act, rows, width});
    std::vector<float> result(static_cast<std::size_t>(rows) * width);
    for (std::size_t i = 0; i < result.size(); ++i) {
      result[i] = read(output->data(), act, static_cast<std::int64_t>(i));
    }
    return result;
  }

  HeadShape heads() const { return {shape_.num_heads, shape_.num_kv_heads, shape_.head_dim}; }
  std::int32_t blocks_of(std::int32_t tokens) const {
    return (tokens + shape_.block_size - 1) / shape_.block_size;
  }
  float normal(float deviation) {
    return std::normal_distribution<float>(0.0f, deviation)(random_);
  }

  void add(const Part& part, std::vector<BlockId>* free_blocks) {
    std::vector<BlockId> blocks(static_cast<std::size_t>(batch_.max_blocks), kNoBlock);
    for (std::int32_t b = 0; b < blocks_of(part.context); ++b) {
      if (b < part.shared_blocks) {
        blocks[static_cast<std::size_t>(b)] =
            batch_.block_tables[part.shared_with * static_cast<std::size_t>(batch_.max_blocks) +
                                static_cast<std::size_t>(b)];
        continue;
      }
      blocks[static_cast<std::size_t>(b)] = free_blocks->back();
      free_blocks->pop_back();
    }
    for (std::int32_t p = 0; p < part.context; ++p) {
      const BlockId block = blocks[static_cast<std::size_t>(p / shape_.block_size)];
      if (p / shape_.block_size >= part.shared_blocks) {
        for (std::int32_t head = 0; head < shape_.num_kv_heads; ++head) store(block, head, p);
      }
      if (p >= part.context - part.queries) {
        batch_.token_ids.push_back(0);
        batch_.positions.push_back(p);
        batch_.slot_mapping.push_back(block * shape_.block_size + p % shape_.block_size);
      }
    }
    batch_.block_tables.insert(batch_.block_tables.end(), blocks.begin(), blocks.end());
    batch_.cu_seqlens.push_back(batch_.num_tokens());
    batch_.context_lens.push_back(part.context);
  }

  // Random keys and values of one token, remembered as the cache rounds them.
  void store(BlockId block, std::int32_t head, std::int32_t position) {
    const auto size = static_cast<std::size_t>(shape_.head_dim);
    const DType act = backend_.activation_dtype();
    const bool rounded = act == DType::kBF16 || kv_dtype_ == DType::kBF16;
    std::vector<float> rotation(size, 0.0f);
    std::fill_n(rotation.begin(), size / 2, 1.0f);
    std::vector<float> inputs[2] = {std::vector<float>(size), std::vector<float>(size)};
    const std::int32_t in_block = position % shape_.block_size;
    std::byte* groups[2];
    for (std::int32_t which = 0; which < 2; ++which) {
      groups[which] =
          cache_->layer(0) + kv_group_offset(block, which, head, in_block, shape_.num_kv_heads,
                                             shape_.block_size, cache_->shape().token_bytes());
      for (std::int32_t d = 0; d < shape_.head_dim; ++d) {
        float value = normal(1.0f);
        if (which == 0 && d == kBiasedDim) value += key_bias_;
        if (rounded) value = float_from_bfloat16(bfloat16_from_float(value));
        written_[index(which, block, head, in_block, d)] = value;
        write(inputs[which].data(), act, d, value);
      }
    }
    store_(inputs[0].data(), inputs[1].data(), shape_.head_dim, rotation.data(), key_offset_.data(),
           in_block % kKvGroupTokens, groups[0], groups[1]);
  }

  std::size_t index(std::int32_t which, BlockId block, std::int32_t head, std::int32_t in_block,
                    std::int32_t dim) const {
    const std::int64_t token =
        (std::int64_t{block} * shape_.num_kv_heads + head) * shape_.block_size + in_block;
    return static_cast<std::size_t>((token * 2 + which) * shape_.head_dim + dim);
  }

  double key_value(std::int32_t which, std::int32_t sequence, std::int32_t head,
                   std::int32_t position, std::int32_t dim) const {
    const BlockId block = batch_.block_tables[static_cast<std::size_t>(
        sequence * batch_.max_blocks + position / shape_.block_size)];
    return written_[index(which, block, head, position % shape_.block_size, dim)];
  }

  // As the kernel sees it.
  float query(std::int32_t row, std::int32_t head, std::int32_t dim) const {
    const float value =
        qkv_[static_cast<std::size_t>(row) * heads().qkv_cols() + head * shape_.head_dim + dim];
    const bool rounded = backend_.activation_dtype() == DType::kBF16 || kv_dtype_ == DType::kBF16;
    return rounded ? float_from_bfloat16(bfloat16_from_float(value)) : value;
  }

  CpuBackend& backend_;
  Shape shape_;
  DType kv_dtype_;
  std::mt19937 random_;
  std::remove_extent_t<std::remove_extent_t<decltype(Kernels::store_kv)>> store_;
  static constexpr std::int32_t kBiasedDim = 5;
  float key_bias_;
  std::vector<float> key_offset_;  // [D]
  std::unique_ptr<KvCache> cache_;
  std::vector<float> written_;
  Batch batch_;
  std::vector<float> qkv_;
};

class AttentionTest : public ::testing::TestWithParam<InstructionSet> {};

// Compares all types of activations and cache on one shape.
void check(InstructionSet set, const Shape& shape, const std::vector<Part>& parts,
           AttentionRule rule) {
  rule.scale = 1.0f / std::sqrt(static_cast<float>(shape.head_dim));
  std::uint32_t seed = 1;
  for (const DType act : {DType::kF32, DType::kBF16}) {
    CpuBackend backend(act, 2, set);
    for (const DType kv : {DType::kF32, DType::kBF16, DType::kI8}) {
      SCOPED_TRACE(std::string("act ") + dtype_name(act) + " kv " + dtype_name(kv) + " head size " +
                   std::to_string(shape.head_dim) + " window " +
                   std::to_string(rule.window_tokens));
      Scene scene(&backend, shape, kv, parts, seed++, set);
      const auto actual = scene.run(rule);
      const auto expected = scene.reference(rule);
      ASSERT_EQ(actual.size(), expected.size());
      // An int8 value is off by up to 1/254 of its head's largest in each of the rotated
      // directions.
      const double tolerance = kv == DType::kI8                          ? 8e-2
                               : act == DType::kF32 && kv == DType::kF32 ? 1e-5
                                                                         : 2e-2;
      double squares = 0;
      for (std::size_t i = 0; i < expected.size(); ++i) {
        ASSERT_NEAR(actual[i], expected[i], tolerance) << "element " << i;
        squares += (actual[i] - expected[i]) * (actual[i] - expected[i]);
      }
      EXPECT_LT(std::sqrt(squares / static_cast<double>(expected.size())), tolerance / 5);
    }
  }
}

// Prefill from the start, a chunk in the middle, decodes at odd and even lengths.
const std::vector<Part> kParts = {{37, 37}, {150, 50}, {1, 1},   {64, 1},
                                  {65, 1},  {66, 1},   {129, 2}, {200, 1}};

TEST_P(AttentionTest, EqualsAFloat64Reference) {
  for (const Shape& shape :
       {Shape{4, 1, 16, 16}, Shape{9, 3, 64, 32}, Shape{4, 4, 80, 16}, Shape{8, 1, 128, 48}}) {
    check(GetParam(), shape, kParts, {});
  }
}

TEST_P(AttentionTest, SeesNothingBeforeTheWindow) {
  for (const std::int32_t window : {1, 5, 24, 63, 64, 65, 130, 1000}) {
    check(GetParam(), {6, 2, 32, 16}, kParts, {.window_tokens = window});
  }
}

TEST_P(AttentionTest, SeesTheWholeSequenceWhereItIsNotCausal) {
  check(GetParam(), {4, 4, 32, 16}, {{1, 1}, {7, 7}, {64, 64}, {65, 65}, {150, 150}},
        {.causal = false});
}

// Families of decodes within families, more of them than a task takes, beside a chunk of prefill.
TEST_P(AttentionTest, GivesARowTheSameWhoeverSharesItsBlocks) {
  std::vector<Part> parts = {{300, 1}, {170, 30}};
  for (std::int32_t i = 0; i < 20; ++i) parts.push_back({210 + 9 * i, 1, 13, 0});
  for (std::int32_t i = 0; i < 5; ++i) parts.push_back({305 + i, 1, 17, 19});
  parts.push_back({208, 1, 13, 0});
  parts.push_back({70, 1, 4, 0});
  parts.push_back({64, 1, 4, 0});
  const Shape shape{9, 3, 64, 16};
  std::uint32_t seed = 90;
  for (const DType act : {DType::kF32, DType::kBF16}) {
    CpuBackend backend(act, 2, GetParam());
    for (const DType kv : {act, DType::kI8}) {
      SCOPED_TRACE(std::string("act ") + dtype_name(act) + " kv " + dtype_name(kv));
      Scene scene(&backend, shape, kv, parts, seed++, GetParam());
      const auto together = scene.run({.scale = 0.125f});
      std::vector<float> alone;
      for (std::int32_t i = 0; i < scene.num_seqs(); ++i) {
        const auto rows = scene.run_alone({.scale = 0.125f}, i);
        alone.insert(alone.end(), rows.begin(), rows.end());
      }
      ASSERT_EQ(together.size(), alone.size());
      const auto [first, other] = std::mismatch(together.begin(), together.end(), alone.begin());
      EXPECT_TRUE(first == together.end())
          << "element " << first - together.begin() << ": " << *first << " and " << *other;
    }
  }
}

// An outlier of 100 would leave an int8 key steps of 0.1 in each rotated direction.
TEST_P(AttentionTest, DoesNotSeeAConstantOfAllKeysInAnInt8Cache) {
  const Shape shape{4, 2, 64, 16};
  const AttentionRule rule{.scale = 0.125f};
  for (const float bias : {0.0f, 100.0f}) {
    SCOPED_TRACE("bias " + std::to_string(bias));
    CpuBackend backend(DType::kF32, 2, GetParam());
    Scene scene(&backend, shape, DType::kI8, {{300, 40}, {200, 1}}, 7, GetParam(), bias);
    const auto actual = scene.run(rule);
    const auto expected = scene.reference(rule);
    double squares = 0;
    for (std::size_t i = 0; i < expected.size(); ++i) {
      squares += (actual[i] - expected[i]) * (actual[i] - expected[i]);
    }
    EXPECT_LT(std::sqrt(squares / static_cast<double>(expected.size())), 6e-3);
  }
}

INSTANTIATE_TEST_SUITE_P(InstructionSets, AttentionTest,
                         ::testing::ValuesIn(supported_instruction_sets()),
                         [](const auto& set) { return instruction_set_name(set.param); });

}  // namespace
}  // namespace batchmill
