// Prints the table of engine/README.md, section Agreement: every model of the reference data that
// is here × dtype. Models that are not here are named on stderr.
#include <algorithm>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/engine/golden_agreement.h"
#include "tests/engine/golden_models.h"

namespace batchmill {
namespace {

std::vector<std::string> wanted;  // as given; empty: all

bool is_wanted(const std::string& name) {
  return wanted.empty() || std::any_of(wanted.begin(), wanted.end(), [&](const std::string& part) {
           return name.find(part) != std::string::npos;
         });
}

void print_rows(const std::string& name, const std::string& types, const std::string& path,
                const std::string& golden, const std::vector<CpuDType>& dtypes) {
  if (!is_wanted(name)) return;
  for (const std::string& file : {path, golden}) {
    if (std::filesystem::exists(file)) continue;
    std::fprintf(stderr, "skipped: %s, no file %s\n", name.c_str(), file.c_str());
    return;
  }
  const ModelFiles model =
      std::filesystem::is_directory(path) ? read_model_folder(path) : read_gguf_model(path);
  for (const CpuDType dtype : dtypes) {
    const testing::Agreement agreement = testing::measure_agreement(model, golden, dtype);
    std::printf("| %s | %s | %s | %.2g | %.2g | %lld of %lld | %.2g | %.2g |\n", name.c_str(),
                types.c_str(), testing::dtype_text(dtype).c_str(), agreement.largest_error,
                agreement.mean_rms, static_cast<long long>(agreement.num_equal),
                static_cast<long long>(agreement.num_best), agreement.flip_margin,
                agreement.logprob_error);
    std::fflush(stdout);
  }
}

void print_table() {
  std::printf(
      "| model | file | dtype | largest | rms | best tokens equal | flip margin | log p |\n");
  std::printf("|---|---|---|---|---|---|---|---|\n");
  for (const testing::GgufTwin& twin : testing::gguf_twins()) {
    print_rows(twin.model + " (tiny)", "GGUF " + twin.variant, twin.file(BATCHMILL_TEST_DATA),
               twin.golden(BATCHMILL_TEST_DATA), {CpuDType::kF32, CpuDType::kBF16});
  }
  for (const std::string& name : testing::model_folders()) {
    const std::string folder = std::string(BATCHMILL_TEST_DATA) + "/models/" + name;
    print_rows(name + " (tiny)", "safetensors", folder, folder + "/golden.json",
               {CpuDType::kF32, CpuDType::kBF16});
  }
  for (const testing::PublishedModel& published : testing::published_models()) {
    print_rows(published.name, "GGUF", published.path, published.golden(),
               {CpuDType::kF32, CpuDType::kBF16, CpuDType::kInt8});
  }
}

}  // namespace
}  // namespace batchmill

int main(int argc, char** argv) try {
  batchmill::wanted.assign(argv + 1, argv + argc);
  batchmill::print_table();
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
