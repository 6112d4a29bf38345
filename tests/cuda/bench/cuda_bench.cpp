// cuda_bench [--tiny] [--only PART-OF-NAMES] [--json FILE]: what the first device does of what it
// can. Exit code 77 without a device.
#include <cstdio>
#include <cstring>
#include <exception>

#include "tests/cuda/bench/bench.h"

namespace {

int usage() {
  std::fprintf(stderr, "usage: cuda_bench [--tiny] [--only PART-OF-NAMES] [--json FILE]\n");
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
  using namespace batchmill;
  testing::BenchOptions options;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--tiny") == 0) {
      options.tiny = true;
    } else if (std::strcmp(argv[i], "--only") == 0 && i + 1 < argc) {
      options.filter = argv[++i];
    } else if (std::strcmp(argv[i], "--json") == 0 && i + 1 < argc) {
      options.json_path = argv[++i];
    } else {
      return usage();
    }
  }
  try {
    std::string reason;
    if (count_devices(&reason) == 0) {
      std::printf("skipped: no GPU (%s)\n", reason.c_str());
      return 77;
    }
    std::printf("%s\n", device_facts(0).name.c_str());
    testing::Bench bench(options);
    bench.measure_ceilings();
    testing::bench_kernels(&bench);
    testing::bench_products(&bench);
    testing::bench_attention(&bench);
    testing::bench_steps(&bench);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "cuda_bench: %s\n", error.what());
    return 1;
  }
  return 0;
}
