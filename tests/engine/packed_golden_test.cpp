// Folders in AWQ's and GPTQ's formats on the CPU backend against outputs of Hugging Face
// transformers in float32 for the same matrices dequantized.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>

#include "engine/json_file.h"
#include "tests/engine/golden_check.h"
#include "tests/engine/scripted_sequences.h"

namespace batchmill {
namespace {

using testing::ScriptedSequences;

class PackedGoldenTest : public ::testing::TestWithParam<std::string> {};

TEST_P(PackedGoldenTest, GivesTheReferencesLogits) {
  const std::string folder = BATCHMILL_TEST_DATA "/packed/" + GetParam();
  const ModelFiles files = read_model_folder(folder);
  CpuOptions options;
  options.dtype = CpuDType::kF32;
  options.num_blocks = 16;
  const auto runner = make_cpu_runner(*files.tensors, files.config, options);
  const auto expected = read_json_file(folder + "/expected.json");
  ScriptedSequences sequences(runner.get(), 5);
  const auto prompt = expected.at("prompt").get<std::vector<TokenId>>();
  sequences.add(prompt);
  const auto logits = sequences.step({static_cast<std::int32_t>(prompt.size())}).back();
  const auto reference = expected.at("logits").get<std::vector<double>>();
  ASSERT_EQ(logits.size(), reference.size());
  double squares = 0;
  for (const double logit : reference) squares += logit * logit;
  const double size = std::sqrt(squares / static_cast<double>(reference.size()));
  for (std::size_t i = 0; i < logits.size(); ++i) {
    EXPECT_NEAR(logits[i], reference[i], testing::kF32.largest_error * size) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, PackedGoldenTest,
                         ::testing::Values("awq", "gptq", "gptq-act-order", "gptq-v2"),
                         [](const auto& format) {
                           std::string name = format.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace batchmill
