// Runs the checks on the first GPU: cuda_check [PART-OF-NAMES] [--without PART,PART…]. Exit code 77
// without a GPU.
#include <cstdio>
#include <sstream>
#include <string>

#include "cuda/stream.h"
#include "tests/cuda/check.h"

int main(int argc, char** argv) {
  using namespace batchmill;
  std::string filter;
  std::vector<std::string> without;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--without" && i + 1 < argc) {
      std::istringstream parts(argv[++i]);
      for (std::string part; std::getline(parts, part, ',');) without.push_back(part);
    } else if (argument.starts_with("-") || !filter.empty()) {
      std::fprintf(stderr, "usage: cuda_check [PART-OF-NAMES] [--without PART,PART…]\n");
      return 2;
    } else {
      filter = argument;
    }
  }
  std::string reason;
  if (count_devices(&reason) == 0) {
    std::printf("skipped: no GPU (%s)\n", reason.c_str());
    return 77;
  }
  const DeviceFacts facts = device_facts(0);
  std::printf("%s, %d multiprocessors, %.1f of %.1f GB free\n", facts.name.c_str(),
              facts.multiprocessors, static_cast<double>(facts.free_bytes) * 1e-9,
              static_cast<double>(facts.total_bytes) * 1e-9);
  return testing::run_checks(filter, without) == 0 ? 0 : 1;
}
