// Sentence embeddings against those of Hugging Face transformers in float32.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "engine/cpu/cpu_encoder.h"
#include "engine/model_files.h"
#include "tests/engine/golden_models.h"

namespace batchmill {
namespace {

using Ids = std::vector<TokenId>;

const std::string kFolder = std::string(BATCHMILL_TEST_DATA) + "/models/bert";

Batch batch_of(const std::vector<Ids>& sequences) {
  Batch batch;
  batch.cu_seqlens = {0};
  for (const Ids& ids : sequences) {
    batch.token_ids.insert(batch.token_ids.end(), ids.begin(), ids.end());
    for (std::size_t p = 0; p < ids.size(); ++p) {
      batch.positions.push_back(static_cast<std::int32_t>(p));
    }
    batch.cu_seqlens.push_back(batch.num_tokens());
  }
  return batch;
}

std::vector<std::vector<float>> embed(EncoderRunner* runner, const std::vector<Ids>& sequences) {
  const auto width = static_cast<std::size_t>(runner->embedding_size());
  std::vector<float> values(sequences.size() * width);
  runner->embed(batch_of(sequences), values);
  std::vector<std::vector<float>> rows;
  for (std::size_t s = 0; s < sequences.size(); ++s) {
    rows.emplace_back(values.begin() + static_cast<std::ptrdiff_t>(s * width),
                      values.begin() + static_cast<std::ptrdiff_t>((s + 1) * width));
  }
  return rows;
}

struct Case {
  std::vector<Ids> inputs;  // without padding
  std::vector<std::vector<double>> embeddings;
};

std::vector<Case> read_cases(const std::string& path = kFolder + "/golden.json") {
  std::ifstream stream(path);
  std::vector<Case> cases;
  for (const nlohmann::json& c : nlohmann::json::parse(stream)) {
    Case one;
    if (!c["input"][0].is_array()) {
      one.inputs = {c["input"].get<Ids>()};
      one.embeddings = {c["embedding"].get<std::vector<double>>()};
    } else {
      one.inputs = c["input"].get<std::vector<Ids>>();
      one.embeddings = c["embedding"].get<std::vector<std::vector<double>>>();
      for (std::size_t i = 0; i < one.inputs.size(); ++i) {
        const auto mask = c["attention_mask"][i].get<std::vector<int>>();
        one.inputs[i].resize(static_cast<std::size_t>(std::count(mask.begin(), mask.end(), 1)));
      }
    }
    cases.push_back(std::move(one));
  }
  return cases;
}

std::unique_ptr<EncoderRunner> make_encoder(CpuDType dtype, InstructionSet set,
                                            const std::string& folder = kFolder) {
  const ModelFiles model = read_model_folder(folder);
  CpuOptions options;
  options.dtype = dtype;
  options.threads = 2;
  options.instruction_set = set;
  return make_cpu_encoder(*model.tensors, model.config, options);
}

class EncoderTest : public ::testing::TestWithParam<InstructionSet> {};

TEST_P(EncoderTest, GivesTheReferencesEmbeddings) {
  for (const CpuDType dtype : {CpuDType::kF32, CpuDType::kBF16}) {
    const auto runner = make_encoder(dtype, GetParam());
    const std::vector<Case> cases = read_cases();
    ASSERT_EQ(cases.size(), 5u);
    for (const Case& c : cases) {
      const auto rows = embed(runner.get(), c.inputs);
      ASSERT_EQ(rows.size(), c.embeddings.size());
      for (std::size_t s = 0; s < rows.size(); ++s) {
        double cosine = 0;
        double squares = 0;
        for (std::size_t i = 0; i < rows[s].size(); ++i) {
          if (dtype == CpuDType::kF32) {
            ASSERT_NEAR(rows[s][i], c.embeddings[s][i], 1e-5);
          }
          cosine += rows[s][i] * c.embeddings[s][i];
          squares += double{rows[s][i]} * rows[s][i];
        }
        EXPECT_NEAR(squares, 1.0, 1e-5);
        EXPECT_GE(cosine, 1.0 - 5e-4);
      }
    }
  }
}

TEST_P(EncoderTest, SequencesDoNotDependOnTheirBatch) {
  const auto runner = make_encoder(CpuDType::kF32, GetParam());
  std::vector<Ids> all;
  for (const Case& c : read_cases()) all.insert(all.end(), c.inputs.begin(), c.inputs.end());
  const auto together = embed(runner.get(), all);
  for (std::size_t s = 0; s < all.size(); ++s) {
    const auto alone = embed(runner.get(), {all[s]});
    for (std::size_t i = 0; i < alone[0].size(); ++i) {
      EXPECT_NEAR(alone[0][i], together[s][i], 1e-6) << s;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(InstructionSets, EncoderTest,
                         ::testing::ValuesIn(supported_instruction_sets()),
                         [](const auto& set) { return instruction_set_name(set.param); });

// A published encoder, which is not in the repository.
TEST(PublishedEncoderTest, GivesTheReferencesEmbeddings) {
  const std::string folder = testing::vocabulary_file("minilm");
  if (folder.empty()) GTEST_SKIP() << "skipped: no folder minilm (BATCHMILL_VOCABS)";
  const std::string golden = std::string(BATCHMILL_TEST_DATA) + "/encoders/all-MiniLM-L6-v2.json";
  const std::pair<CpuDType, double> limits[] = {
      {CpuDType::kF32, 1e-6}, {CpuDType::kBF16, 5e-4}, {CpuDType::kInt8, 2e-3}};
  for (const auto& [dtype, limit] : limits) {
    const auto runner = make_encoder(dtype, best_instruction_set(), folder);
    double worst = 0;
    for (const Case& c : read_cases(golden)) {
      const auto row = embed(runner.get(), c.inputs)[0];
      double cosine = 0;
      for (std::size_t i = 0; i < row.size(); ++i) cosine += row[i] * c.embeddings[0][i];
      worst = std::max(worst, 1.0 - cosine);
    }
    std::cout << testing::dtype_text(dtype) << ": 1 - cosine at most " << worst << "\n";
    EXPECT_LE(worst, limit);
  }
}

TEST(EncoderLimitsTest, MayHaveLearnedMorePositionsThanItIsMeantFor) {
  const ModelFiles model = read_model_folder(kFolder);
  ModelConfig config = model.config;
  CpuOptions options;
  options.dtype = CpuDType::kF32;
  const auto whole = make_cpu_encoder(*model.tensors, config, options);
  config.max_context_tokens = 100;
  const auto part = make_cpu_encoder(*model.tensors, config, options);
  EXPECT_EQ(part->max_sequence_tokens(), 100);
  EXPECT_EQ(embed(part.get(), {Ids(100, 7)}), embed(whole.get(), {Ids(100, 7)}));
  config.max_context_tokens = 257;  // the table has 256
  EXPECT_THROW((void)make_cpu_encoder(*model.tensors, config, options), std::runtime_error);
}

TEST(EncoderLimitsTest, RefusesWhatItCannotEncode) {
  const auto runner = make_encoder(CpuDType::kF32, best_instruction_set());
  std::vector<float> room(2 * 64);
  EXPECT_THROW(runner->embed(batch_of({Ids(300, 5)}), room), std::invalid_argument);
  EXPECT_THROW(runner->embed(batch_of({Ids{}}), room), std::invalid_argument);
  EXPECT_THROW(runner->embed(batch_of({{5}, {6}, {7}}), room), std::invalid_argument);
  const ModelFiles bert = read_model_folder(kFolder);
  EXPECT_THROW((void)make_cpu_runner(*bert.tensors, bert.config, {}), std::runtime_error);
  const ModelFiles llama = read_model_folder(std::string(BATCHMILL_TEST_DATA) + "/models/llama");
  EXPECT_THROW((void)make_cpu_encoder(*llama.tensors, llama.config, {}), std::runtime_error);
}

}  // namespace
}  // namespace batchmill
