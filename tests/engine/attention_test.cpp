// The attention kernels of every instruction set against a slow float64 reference, on caches whose
// unused slots hold NaN.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <random>
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

// A sequence's context and how many of its last tokens are queries.
struct Part {
  std::int32_t context;
  std::int32_t queries;
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
  Scene(CpuBackend* backend, const Shape& shape, DType kv_dtype, const std::vector<Part>& parts,
        std::uint32_t seed)
      : backend_(*backend), shape_(shape), kv_dtype_(kv_dtype), random_(seed) {
    std::int32_t num_blocks = 3;
    for (const Part& part : parts) num_blocks += blocks_of(part.context);
    cache_ = backend_.make_kv_cache(
        {1, num_blocks, shape.block_size, shape.num_kv_heads, shape.head_dim, kv_dtype});
    const auto elements =
        static_cast<std::int64_t>(cache_->shape().bytes()) / dtype_bytes(kv_dtype);
    for (std::int64_t i = 0; i < elements; ++i) {
      write(cache_->layer(0), kv_dtype, i, std::numeric_limits<float>::quiet_NaN());
    }
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
  std::vector<float> run(const AttentionRule& rule) {
    const std::int32_t rows = batch_.num_tokens();
    const DType act = backend_.activation_dtype();
    const std::int32_t width = shape_.num_heads * shape_.head_dim;
    auto input = backend_.allocate(qkv_.size() * 4);
    auto output = backend_.allocate(static_cast<std::size_t>(rows) * width * 4);
    for (std::size_t i = 0; i < qkv_.size(); ++i) {
      write(input->data(), act, static_cast<std::int64_t>(i), qkv_[i]);
    }
    backend_.begin_step(batch_, heads());
    backend_.attention({input->data(), act, rows, heads().qkv_cols()}, *cache_, 0, rule,
                       {output->data(), act, rows, width});
    std::vector<float> result(static_cast<std::size_t>(rows) * width);
    for (std::size_t i = 0; i < result.size(); ++i) {
      result[i] = read(output->data(), act, static_cast<std::int64_t>(i));
    }
    return result;
  }

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
      blocks[static_cast<std::size_t>(b)] = free_blocks->back();
      free_blocks->pop_back();
    }
    for (std::int32_t p = 0; p < part.context; ++p) {
      const BlockId block = blocks[static_cast<std::size_t>(p / shape_.block_size)];
      for (std::int32_t head = 0; head < shape_.num_kv_heads; ++head) {
        for (std::int32_t d = 0; d < shape_.head_dim; ++d) {
          for (std::int32_t which = 0; which < 2; ++which) {
            write(cache_->layer(0), kv_dtype_, element(which, block, head, p, d), normal(1.0f));
          }
        }
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

  std::int64_t element(std::int32_t which, BlockId block, std::int32_t head, std::int32_t position,
                       std::int32_t dim) const {
    const std::int32_t in_block = position % shape_.block_size;
    const std::int32_t pack = kv_pack(kv_dtype_);
    const std::int64_t group = kv_group_index(block, which, head, in_block, shape_.num_kv_heads,
                                              shape_.block_size, shape_.head_dim);
    const std::int32_t token = in_block % kKvGroupTokens;
    return group +
           (which == 0 ? k_index(token, dim, pack) : v_index(token, dim, pack, shape_.head_dim));
  }

  double key_value(std::int32_t which, std::int32_t sequence, std::int32_t head,
                   std::int32_t position, std::int32_t dim) const {
    const BlockId block = batch_.block_tables[static_cast<std::size_t>(
        sequence * batch_.max_blocks + position / shape_.block_size)];
    return read(cache_->layer(0), kv_dtype_, element(which, block, head, position, dim));
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
  std::unique_ptr<KvCache> cache_;
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
    for (const DType kv : {DType::kF32, DType::kBF16}) {
      SCOPED_TRACE(std::string("act ") + dtype_name(act) + " kv " + dtype_name(kv) + " head size " +
                   std::to_string(shape.head_dim) + " window " +
                   std::to_string(rule.window_tokens));
      Scene scene(&backend, shape, kv, parts, seed++);
      const auto actual = scene.run(rule);
      const auto expected = scene.reference(rule);
      ASSERT_EQ(actual.size(), expected.size());
      const double tolerance = act == DType::kF32 && kv == DType::kF32 ? 1e-5 : 2e-2;
      for (std::size_t i = 0; i < expected.size(); ++i) {
        ASSERT_NEAR(actual[i], expected[i], tolerance) << "element " << i;
      }
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

INSTANTIATE_TEST_SUITE_P(InstructionSets, AttentionTest,
                         ::testing::ValuesIn(supported_instruction_sets()),
                         [](const auto& set) { return instruction_set_name(set.param); });

}  // namespace
}  // namespace batchmill
