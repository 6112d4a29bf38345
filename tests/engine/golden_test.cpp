// The CPU backend against outputs of Hugging Face transformers in float32, within the tolerances
// that the reference data's README derives.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "tests/engine/golden_check.h"

namespace batchmill {
namespace {

using testing::check_golden;
using testing::kF32;
using testing::kRealBf16;
using testing::kRealInt8;
using testing::kTinyBf16;
using testing::Tolerance;

void check_file(const std::string& model, const std::string& golden, CpuDType dtype,
                const Tolerance& tolerance, InstructionSet set = best_instruction_set()) {
  check_golden(read_gguf_model(model), golden, dtype, tolerance, set);
}

struct TinyCase {
  std::string variant;
  CpuDType dtype;
};

class TinyLlamaTest : public ::testing::TestWithParam<TinyCase> {};

TEST_P(TinyLlamaTest, GivesTheReferencesOutputs) {
  const std::string folder = BATCHMILL_TEST_DATA "/models/llama3/";
  const auto& [variant, dtype] = GetParam();
  for (const InstructionSet set : supported_instruction_sets()) {
    SCOPED_TRACE(instruction_set_name(set));
    check_file(folder + "model-" + variant + ".gguf", folder + "golden-" + variant + ".json", dtype,
               dtype == CpuDType::kF32 ? kF32 : kTinyBf16, set);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Variants, TinyLlamaTest,
    ::testing::Values(TinyCase{"f16", CpuDType::kF32}, TinyCase{"q8_0", CpuDType::kF32},
                      TinyCase{"q4_0", CpuDType::kF32}, TinyCase{"f16", CpuDType::kBF16},
                      TinyCase{"q8_0", CpuDType::kBF16}, TinyCase{"q4_0", CpuDType::kBF16}),
    [](const auto& variant) {
      return variant.param.variant + (variant.param.dtype == CpuDType::kF32 ? "_f32" : "_bf16");
    });

class SmolLmTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const char* model = std::getenv("BATCHMILL_MODEL");
    const char* home = std::getenv("HOME");
    const char* reference = std::getenv("BATCHMILL_REFERENCE");
    model_ = model != nullptr ? model
                              : std::string(home != nullptr ? home : "") +
                                    "/.cache/batchmill/SmolLM2-135M-Instruct.Q4_1.gguf";
    golden_ = std::string(reference != nullptr ? reference
                                               : BATCHMILL_SOURCE_DIR "/../shared/reference") +
              "/real/smollm2-135m-instruct-q4_1.json";
    if (!std::filesystem::exists(model_)) GTEST_SKIP() << "skipped: no model at " << model_;
    if (!std::filesystem::exists(golden_)) GTEST_SKIP() << "skipped: no file " << golden_;
  }

  std::string model_;
  std::string golden_;
};

TEST_F(SmolLmTest, GivesTheReferencesOutputsInF32) {
  check_file(model_, golden_, CpuDType::kF32, kF32);
}

TEST_F(SmolLmTest, GivesTheReferencesOutputsInBf16) {
  check_file(model_, golden_, CpuDType::kBF16, kRealBf16);
}

TEST_F(SmolLmTest, GivesTheReferencesOutputsInInt8) {
  check_file(model_, golden_, CpuDType::kInt8, kRealInt8);
}

}  // namespace
}  // namespace batchmill
