// Runs the kernels' checks on the first GPU: cuda_check [FILTER]. Exit code 77 without a GPU.
#include <cstdio>
#include <string>

#include "cuda/stream.h"
#include "tests/cuda/check.h"

int main(int argc, char** argv) {
  std::string reason;
  if (batchmill::count_devices(&reason) == 0) {
    std::printf("skipped: no GPU (%s)\n", reason.c_str());
    return 77;
  }
  return batchmill::testing::run_checks(argc > 1 ? argv[1] : "") == 0 ? 0 : 1;
}
