// The CPU backend against outputs of Hugging Face transformers in float32.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <string>
#include <tuple>

#include "tests/engine/golden_check.h"
#include "tests/engine/golden_models.h"

namespace batchmill {
namespace {

using testing::check_golden;
using testing::GgufTwin;
using testing::PublishedModel;

std::string test_name(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](unsigned char c) { return std::isalnum(c) == 0; }, '_');
  return text;
}

class GgufTwinTest : public ::testing::TestWithParam<std::tuple<GgufTwin, CpuDType>> {};

TEST_P(GgufTwinTest, GivesTheReferencesOutputs) {
  const auto& [twin, dtype] = GetParam();
  const ModelFiles model = read_gguf_model(twin.file(BATCHMILL_TEST_DATA));
  for (const InstructionSet set : supported_instruction_sets()) {
    // The types of a file's tensors make no difference to the kernels.
    if (set != best_instruction_set() && twin.variant != "f16") continue;
    SCOPED_TRACE(instruction_set_name(set));
    check_golden(model, twin.golden(BATCHMILL_TEST_DATA), dtype,
                 testing::tolerance_of(dtype, false), set);
  }
}

std::string twin_name(const ::testing::TestParamInfo<GgufTwinTest::ParamType>& test) {
  const auto& [twin, dtype] = test.param;
  return test_name(twin.model + "_" + twin.variant + "_" + testing::dtype_text(dtype));
}

INSTANTIATE_TEST_SUITE_P(Models, GgufTwinTest,
                         ::testing::Combine(::testing::ValuesIn(testing::gguf_twins()),
                                            ::testing::Values(CpuDType::kF32, CpuDType::kBF16)),
                         twin_name);

// A cache of the activations' type: what int8 products lose by themselves.
CpuDType wide_cache(const ModelConfig& config) {
  CpuOptions options;
  options.dtype = CpuDType::kInt8;
  const DType activations = plan_cpu(config, options).activation_dtype;
  return activations == DType::kBF16 ? CpuDType::kBF16 : CpuDType::kF32;
}

testing::Tolerance tolerance_of_tiny(const ModelConfig& config, CpuDType dtype) {
  if (!config.experts || dtype == CpuDType::kF32) return testing::tolerance_of(dtype, false);
  return dtype == CpuDType::kInt8 ? testing::kTinyExpertsInt8 : testing::kTinyExpertsBf16;
}

class ModelFolderTest : public ::testing::TestWithParam<std::tuple<std::string, CpuDType>> {};

TEST_P(ModelFolderTest, GivesTheReferencesOutputs) {
  const auto& [name, dtype] = GetParam();
  const std::string folder = std::string(BATCHMILL_TEST_DATA) + "/models/" + name;
  const ModelFiles model = read_model_folder(folder);
  const testing::Tolerance tolerance = tolerance_of_tiny(model.config, dtype);
  for (const InstructionSet set : supported_instruction_sets()) {
    // Its kernels have tests of their own on every set.
    if (dtype == CpuDType::kInt8 && set != best_instruction_set()) continue;
    SCOPED_TRACE(instruction_set_name(set));
    check_golden(model, folder + "/golden.json", dtype, tolerance, set);
  }
}

std::string folder_name(const ::testing::TestParamInfo<ModelFolderTest::ParamType>& test) {
  const auto& [name, dtype] = test.param;
  return test_name(name + "_" + testing::dtype_text(dtype));
}

INSTANTIATE_TEST_SUITE_P(Models, ModelFolderTest,
                         ::testing::Combine(::testing::ValuesIn(testing::model_folders()),
                                            ::testing::Values(CpuDType::kF32, CpuDType::kBF16,
                                                              CpuDType::kInt8)),
                         folder_name);

// Computed token by token, so that each is rotated by the base of its own position.
TEST(DynamicScalingTest, GivesTheReferencesOutputs) {
  const std::string data = BATCHMILL_TEST_DATA;
  ModelFiles model = read_model_folder(data + "/models/llama-linear");
  RopeConfig rope;
  rope.scaling = RopeScaling::kDynamic;
  rope.factor = 4.0f;
  rope.original_context_tokens = 64;
  model.config.ropes = {rope};
  check_golden(model, data + "/positions/golden-dynamic.json", CpuDType::kF32, testing::kF32);
}

class PublishedModelTest : public ::testing::TestWithParam<std::tuple<PublishedModel, CpuDType>> {};

TEST_P(PublishedModelTest, GivesTheReferencesOutputs) {
  const auto& [published, dtype] = GetParam();
  const std::string golden = published.golden();
  if (published.path.empty()) {
    GTEST_SKIP() << "skipped: no " << published.name << " (BATCHMILL_MODEL, BATCHMILL_VOCABS)";
  }
  if (golden.empty()) GTEST_SKIP() << "skipped: no reference data (BATCHMILL_REFERENCE)";
  const ModelFiles model = read_gguf_model(published.path);
  check_golden(model, golden, dtype, testing::tolerance_of(dtype, true));
  if (dtype != CpuDType::kInt8) return;
  SCOPED_TRACE("int8 products alone");
  check_golden(model, golden, dtype, testing::kRealInt8, best_instruction_set(),
               wide_cache(model.config));
}

std::string published_name(const ::testing::TestParamInfo<PublishedModelTest::ParamType>& test) {
  const auto& [published, dtype] = test.param;
  return test_name(published.name + "_" + testing::dtype_text(dtype));
}

INSTANTIATE_TEST_SUITE_P(Models, PublishedModelTest,
                         ::testing::Combine(::testing::ValuesIn(testing::published_models()),
                                            ::testing::Values(CpuDType::kF32, CpuDType::kBF16,
                                                              CpuDType::kInt8)),
                         published_name);

}  // namespace
}  // namespace batchmill
