// The models whose reference outputs the tests hold, and where they are.
#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "engine/cpu/cpu_runner.h"
#include "tests/support/reference_data.h"

namespace batchmill::testing {

inline std::string dtype_text(CpuDType dtype) {
  switch (dtype) {
    case CpuDType::kF32:
      return "f32";
    case CpuDType::kBF16:
      return "bf16";
    case CpuDType::kInt8:
      return "int8";
    case CpuDType::kAuto:
      break;
  }
  return "auto";
}

// A tiny model of tests/data/models in one of its GGUF files.
struct GgufTwin {
  std::string model;
  std::string variant;  // of the tensors' types: "f16", "q8_0", …

  std::string file(const std::string& data) const {
    return data + "/models/" + model + "/model-" + variant + ".gguf";
  }
  std::string golden(const std::string& data) const {
    return data + "/models/" + model + "/golden-" + variant + ".json";
  }
};

// How test names show it.
inline void PrintTo(const GgufTwin& twin, std::ostream* stream) {
  *stream << twin.model << " " << twin.variant;
}

inline std::vector<GgufTwin> gguf_twins() {
  return {{"llama3", "f16"},       {"llama3", "q8_0"},     {"llama3", "q4_0"},
          {"llama3", "q4_k_m"},    {"llama3", "mixed"},    {"qwen2", "f16"},
          {"qwen2", "q8_0"},       {"qwen2", "q4_0"},      {"qwen2", "q4_k_m"},
          {"qwen2", "mixed"},      {"gpt2", "f16"},        {"gpt2", "q8_0"},
          {"gpt2", "q4_0"},        {"gpt2", "q4_k_m"},     {"gemma3_text", "f16"},
          {"gemma3_text", "q8_0"}, {"gemma3_text", "q4_0"}};
}

// The tiny models of tests/data/models as Hugging Face folders, one per family and kind of
// rotation.
inline std::vector<std::string> model_folders() {
  return {"llama",      "llama3", "llama-linear", "mistral",     "qwen2",
          "qwen2-yarn", "qwen3",  "gpt2",         "gemma3_text", "deepseek_v3"};
}

// A published model, which is not in the repository; nor are its reference outputs.
struct PublishedModel {
  std::string name;  // of the golden file, without .json
  std::string path;  // of the model
  std::string golden() const { return reference_file("real/" + name + ".json"); }
};

inline void PrintTo(const PublishedModel& published, std::ostream* stream) {
  *stream << published.name;
}

// The paths of those that are not there are empty.
inline std::vector<PublishedModel> published_models() {
  return {{"smollm2-135m-instruct-q4_1", model_file()},
          {"gemma3-270m-q4_k_m", vocabulary_file("gemma.gguf")},
          {"qwen2.5-coder-0.5b-q4_k_m", vocabulary_file("pandas.bin")}};
}

}  // namespace batchmill::testing
