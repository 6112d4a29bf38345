// Whatever way a sequence is divided into steps, and whoever shares them, its logits are the same.
#include "engine/cpu/cpu_runner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "engine/cpu/cpu_backend.h"
#include "engine/dequantize.h"
#include "engine/model_files.h"
#include "tests/engine/scripted_sequences.h"

namespace batchmill {
namespace {

using Logits = std::vector<std::vector<float>>;
using testing::ScriptedSequences;

std::unique_ptr<CpuRunner> make_runner(CpuDType dtype, std::int32_t num_blocks = 200,
                                       InstructionSet set = best_instruction_set()) {
  const ModelFiles model = read_gguf_model(BATCHMILL_TEST_DATA "/models/llama3/model-f16.gguf");
  CpuOptions options;
  options.dtype = dtype;
  if (dtype == CpuDType::kInt8) options.kv_dtype = dtype;
  options.threads = 2;
  options.block_size_tokens = 16;
  options.num_blocks = num_blocks;
  options.instruction_set = set;
  return make_cpu_runner(*model.tensors, model.config, options);
}

std::vector<TokenId> random_tokens(std::int32_t count, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<TokenId> tokens(static_cast<std::size_t>(count));
  for (TokenId& token : tokens) token = static_cast<TokenId>(random() % 384);
  return tokens;
}

Logits run_in_chunks(ModelRunner* runner, const std::vector<TokenId>& tokens, std::uint32_t seed,
                     const std::vector<std::int32_t>& chunks) {
  ScriptedSequences sequences(runner, seed);
  sequences.add(tokens);
  Logits all;
  for (const std::int32_t chunk : chunks) {
    for (auto& row : sequences.step({chunk})) all.push_back(std::move(row));
  }
  return all;
}

float largest_difference(const Logits& a, const Logits& b) {
  EXPECT_EQ(a.size(), b.size());
  float largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    for (std::size_t j = 0; j < a[i].size(); ++j) {
      const float difference = std::abs(a[i][j] - b[i][j]);
      if (std::isnan(difference)) return std::numeric_limits<float>::infinity();
      largest = std::max(largest, difference);
    }
  }
  return largest;
}

class CpuRunnerTest : public ::testing::TestWithParam<CpuDType> {
 protected:
  // Logits of the tiny model deviate by about 1.7.
  float tolerance() const { return GetParam() == CpuDType::kF32 ? 1e-5f : 0.4f; }
};

TEST_P(CpuRunnerTest, PrefillInOnePieceInChunksAndTokenByTokenAgree) {
  const auto runner = make_runner(GetParam());
  const auto tokens = random_tokens(150, 1);
  const Logits whole = run_in_chunks(runner.get(), tokens, 1, {150});
  EXPECT_LE(largest_difference(whole, run_in_chunks(runner.get(), tokens, 2, {150})), 0.0f);
  EXPECT_LE(largest_difference(whole, run_in_chunks(runner.get(), tokens, 3, {64, 64, 22})),
            tolerance());
  EXPECT_LE(largest_difference(whole, run_in_chunks(runner.get(), tokens, 4, {1, 33, 7, 100, 9})),
            tolerance());
  EXPECT_LE(largest_difference(
                whole, run_in_chunks(runner.get(), tokens, 5, std::vector<std::int32_t>(150, 1))),
            tolerance());
}

TEST_P(CpuRunnerTest, RowsDoNotDependOnWhoSharesTheStep) {
  const auto runner = make_runner(GetParam());
  const auto tokens = random_tokens(90, 2);
  const Logits alone = run_in_chunks(runner.get(), tokens, 1, {80, 1, 1, 8});
  ScriptedSequences sequences(runner.get(), 9);
  sequences.add(tokens);
  for (std::uint32_t s = 0; s < 12; ++s) {
    sequences.add(random_tokens(200, 100 + s));
  }
  Logits together;
  const std::vector<std::vector<std::int32_t>> steps = {
      {80, 40, 30, 20, 10, 5, 4, 3, 2, 1, 0, 0, 7},
      {1, 1, 1, 60, 1, 1, 1, 1, 1, 1, 17, 0, 1},
      {1, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0},
      {8, 100, 1, 1, 1, 1, 1, 1, 1, 1, 1, 90, 1}};
  for (const auto& counts : steps) {
    const auto rows = sequences.step(counts);
    together.insert(together.end(), rows.begin(), rows.begin() + counts[0]);
  }
  EXPECT_EQ(largest_difference(alone, together), 0.0f);
}

TEST_P(CpuRunnerTest, SequencesOfOneStepReadEachOthersNewKeys) {
  const auto runner = make_runner(GetParam());
  const auto tokens = random_tokens(48, 3);
  const Logits whole = run_in_chunks(runner.get(), tokens, 1, {48});
  // Two sequences of one step: rows 0 to 31 by the first; the second has the same first two blocks
  // and computes only rows 32 to 47.
  Batch batch;
  batch.cu_seqlens = {0, 32, 48};
  batch.context_lens = {32, 48};
  batch.max_blocks = 3;
  batch.block_tables = {11, 5, kNoBlock, 11, 5, 2};
  for (std::int32_t i = 0; i < 48; ++i) {
    const std::int32_t block = batch.block_tables[static_cast<std::size_t>(3 + i / 16)];
    batch.token_ids.push_back(tokens[static_cast<std::size_t>(i)]);
    batch.positions.push_back(i);
    batch.slot_mapping.push_back(block * 16 + i % 16);
    batch.logits_rows.push_back(i);
  }
  std::vector<float> logits(48 * 384);
  runner->forward(batch, logits);
  Logits shared(48);
  for (std::size_t i = 0; i < 48; ++i) {
    shared[i].assign(logits.begin() + static_cast<std::ptrdiff_t>(i * 384),
                     logits.begin() + static_cast<std::ptrdiff_t>((i + 1) * 384));
  }
  EXPECT_LE(largest_difference(whole, shared), tolerance());
}

TEST_P(CpuRunnerTest, CopiesPartOfABlockBeforeTheStep) {
  const auto runner = make_runner(GetParam());
  const auto tokens = random_tokens(29, 4);
  const Logits whole = run_in_chunks(runner.get(), tokens, 1, {29});
  Batch batch;  // 21 tokens in blocks 7 and 3
  batch.cu_seqlens = {0, 21};
  batch.context_lens = {21};
  batch.max_blocks = 2;
  batch.block_tables = {7, 3};
  for (std::int32_t i = 0; i < 21; ++i) {
    batch.token_ids.push_back(tokens[static_cast<std::size_t>(i)]);
    batch.positions.push_back(i);
    batch.slot_mapping.push_back((i < 16 ? 7 : 3) * 16 + i % 16);
  }
  runner->forward(batch, {});
  // Another sequence shares block 7 and continues a copy of the 5 tokens in block 3.
  batch.clear();
  batch.copies = {{3, 90, 5}};
  batch.cu_seqlens = {0, 8};
  batch.context_lens = {29};
  batch.max_blocks = 2;
  batch.block_tables = {7, 90};
  for (std::int32_t i = 21; i < 29; ++i) {
    batch.token_ids.push_back(tokens[static_cast<std::size_t>(i)]);
    batch.positions.push_back(i);
    batch.slot_mapping.push_back(90 * 16 + i % 16);
  }
  batch.logits_rows = {7};
  std::vector<float> logits(384);
  runner->forward(batch, logits);
  EXPECT_LE(largest_difference({whole.back()}, {logits}), tolerance());
}

INSTANTIATE_TEST_SUITE_P(DTypes, CpuRunnerTest,
                         ::testing::Values(CpuDType::kF32, CpuDType::kBF16, CpuDType::kInt8),
                         [](const auto& dtype) {
                           return dtype.param == CpuDType::kF32    ? "f32"
                                  : dtype.param == CpuDType::kBF16 ? "bf16"
                                                                   : "int8";
                         });

TEST(GemmTest, PacksMatricesLargerThanASlice) {
  // Some megabytes, and an output size that is no multiple of anything.
  constexpr std::int32_t kOut = 5003;
  constexpr std::int32_t kIn = 512;
  const auto weight = [](std::int64_t row, std::int64_t col) {
    return static_cast<float>((row * 7 + col * 13) % 32 - 16);  // exact in every type
  };
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    CpuBackend backend(dtype, 2);
    const auto matrix = backend.make_matrix(kOut, kIn, [&](std::int64_t row, float* values) {
      for (std::int64_t i = 0; i < kIn; ++i) values[i] = weight(row, i);
    });
    // Row i of the input picks one column of the matrix.
    constexpr std::int32_t kRows = 8;
    const auto buffer = backend.allocate(std::size_t{kRows} * kIn * 4);
    const Tensor input{buffer->data(), dtype, kRows, kIn};
    std::memset(buffer->data(), 0, std::size_t{kRows} * kIn * 4);
    const auto column = [](std::int32_t row) { return row * 63 + 11; };
    for (std::int32_t i = 0; i < kRows; ++i) {
      if (dtype == DType::kF32) {
        input.row<float>(i)[column(i)] = 1.0f;
      } else {
        input.row<std::uint16_t>(i)[column(i)] = bfloat16_from_float(1.0f);
      }
    }
    const auto memory = backend.allocate(std::size_t{kRows} * kOut * 4);
    const Tensor output{memory->data(), DType::kF32, kRows, kOut};
    backend.matmul(input, *matrix, output);
    for (std::int32_t i = 0; i < kRows; ++i) {
      for (std::int32_t j = 0; j < kOut; ++j) {
        ASSERT_EQ(output.row<float>(i)[j], weight(j, column(i))) << i << " " << j;
      }
    }
  }
}

TEST(GemmTest, RowsDoNotDependOnTheirNumber) {
  constexpr std::int32_t kMost = 600;
  std::mt19937 random(8);
  std::normal_distribution<float> normal;
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const auto& [out, in] : {std::pair{576, 576}, {960, 576}, {576, 1536}}) {
      CpuBackend backend(dtype, 2);
      std::vector<float> weights(static_cast<std::size_t>(out) * in);
      for (float& weight : weights) weight = normal(random);
      const auto matrix =
          backend.make_matrix(out, in, [&, width = in](std::int64_t row, float* values) {
            std::copy_n(weights.begin() + row * width, width, values);
          });
      const auto buffer = backend.allocate(std::size_t{kMost + 64} * in * 4);
      const Tensor input{buffer->data(), dtype, kMost + 64, in};
      for (std::int64_t i = 0; i < std::int64_t{kMost + 64} * in; ++i) {
        const float value = normal(random);
        if (dtype == DType::kF32) {
          input.row<float>(0)[i] = value;
        } else {
          input.row<std::uint16_t>(0)[i] = bfloat16_from_float(value);
        }
      }
      const auto memory = backend.allocate(std::size_t{kMost + 64} * out * 4);
      const Tensor output{memory->data(), DType::kF32, kMost + 64, out};
      backend.matmul(input.first_rows(kMost), *matrix, output.first_rows(kMost));
      const std::vector<float> expected(output.row<float>(0), output.row<float>(kMost));
      for (const std::int32_t rows : {1, 2, 3, 5, 8, 9, 17, 40, 64, 65, 100, 255, 256, 300, 513}) {
        backend.matmul(input.first_rows(rows), *matrix, output.first_rows(rows));
        const auto count = static_cast<std::ptrdiff_t>(rows) * out;
        EXPECT_TRUE(std::equal(expected.begin(), expected.begin() + count, output.row<float>(0)))
            << dtype_name(dtype) << " " << out << "x" << in << " rows " << rows;
      }
    }
  }
}

// 2 × rows [rows, in] × matrixᵀ by one backend, as float32: [rows, out].
std::vector<float> product(CpuBackend& backend, std::int32_t out, std::int32_t in,
                           std::int32_t rows) {
  std::mt19937 random(8);
  std::normal_distribution<float> normal;
  std::vector<float> weights(static_cast<std::size_t>(out) * static_cast<std::size_t>(in));
  for (float& weight : weights) weight = normal(random);
  const auto matrix = backend.make_matrix(out, in, [&](std::int64_t row, float* values) {
    std::copy_n(weights.begin() + row * in, in, values);
  });
  const DType dtype = backend.activation_dtype();
  const std::int32_t padded = backend.padded_rows(rows);
  const auto buffer = backend.allocate(std::size_t(padded) * in * 4);
  const Tensor input{buffer->data(), dtype, rows, in};
  for (std::int64_t i = 0; i < std::int64_t{rows} * in; ++i) {
    const float value = normal(random);
    if (dtype == DType::kF32) {
      input.row<float>(0)[i] = value;
    } else {
      input.row<std::uint16_t>(0)[i] = bfloat16_from_float(value);
    }
  }
  const auto memory = backend.allocate(std::size_t(padded) * out * 4);
  const Tensor output{memory->data(), DType::kF32, rows, out};
  backend.matmul(input, *matrix, output);
  backend.matmul_add(input, *matrix, output);
  return {output.row<float>(0), output.row<float>(rows)};
}

TEST(GemmTest, DeterministicRowsDependOnNeitherRowsNorThreads) {
  for (const InstructionSet set : supported_instruction_sets()) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      for (const auto& [out, in] : {std::pair{100, 576}, {16, 4096}}) {
        CpuBackend one(dtype, 1, set, true);
        const std::vector<float> expected = product(one, out, in, 150);
        // Against the usual product in f32: the same up to rounding.
        CpuBackend usual(DType::kF32, 2);
        const std::vector<float> near = product(usual, out, in, 150);
        const float tolerance = (dtype == DType::kF32 ? 1e-4f : 0.05f) * std::sqrt(float(in));
        for (std::size_t i = 0; i < near.size(); ++i) {
          ASSERT_NEAR(expected[i], near[i], tolerance) << i;
        }
        for (const std::int32_t rows : {1, 7, 8, 33, 49}) {
          CpuBackend two(dtype, 2, set, true);
          const std::vector<float> got = product(two, out, in, rows);
          EXPECT_TRUE(std::equal(got.begin(), got.end(), expected.begin()))
              << instruction_set_name(set) << " " << dtype_name(dtype) << " " << out << "x" << in
              << " rows " << rows;
        }
      }
    }
  }
}

TEST(CpuOptionsTest, RefusesWhatDoesNotFit) {
  const ModelFiles model = read_gguf_model(BATCHMILL_TEST_DATA "/models/llama3/model-f16.gguf");
  const ModelConfig& config = model.config;
  CpuOptions options;
  options.block_size_tokens = 20;
  EXPECT_THROW((void)make_cpu_runner(*model.tensors, config, options), std::runtime_error);
  options.block_size_tokens = 16;
  options.kv_cache_bytes = 1;
  EXPECT_THROW((void)make_cpu_runner(*model.tensors, config, options), std::runtime_error);
  options.kv_cache_bytes = 100 * config.kv_bytes_per_token(4);
  options.dtype = CpuDType::kF32;
  EXPECT_EQ(plan_cpu(config, options).num_blocks, 6);
  options.kv_cache_bytes = 0;
  EXPECT_GT(plan_cpu(config, options).num_blocks, 32);
  EXPECT_GE(plan_cpu(config, options).threads, 1);
}

TEST(CpuOptionsTest, KeepsKeysAsInt8BesideInt8WeightsWhereBytesAreMultipliedFast) {
  ModelConfig config = read_gguf_model(BATCHMILL_TEST_DATA "/models/llama3/model-f16.gguf").config;
  const std::int64_t heads = std::int64_t{2} * config.num_layers * config.num_kv_heads;
  CpuOptions options;
  options.dtype = CpuDType::kInt8;
  options.instruction_set = InstructionSet::kAvx512Vnni;
  EXPECT_EQ(plan_cpu(config, options).kv_dtype, DType::kI8);
  EXPECT_EQ(plan_cpu(config, options).kv_bytes_per_token, heads * (config.head_dim + 4));
  options.instruction_set = InstructionSet::kAvx2;
  EXPECT_EQ(plan_cpu(config, options).kv_dtype, DType::kF32);
  options.instruction_set = InstructionSet::kAvx512Bf16;
  options.kv_dtype = CpuDType::kBF16;
  EXPECT_EQ(plan_cpu(config, options).kv_bytes_per_token, heads * config.head_dim * 2);
  options.kv_dtype = CpuDType::kAuto;
  options.dtype = CpuDType::kBF16;
  EXPECT_EQ(plan_cpu(config, options).kv_dtype, DType::kBF16);
  options.dtype = CpuDType::kInt8;
  config.latent = LatentAttention{};
  EXPECT_EQ(plan_cpu(config, options).kv_dtype, DType::kBF16);
}

}  // namespace
}  // namespace batchmill
