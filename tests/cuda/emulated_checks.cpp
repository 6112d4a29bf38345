// Runs the kernels' checks on emulated threads: emulated_checks [SEED [FILTER]].
#include <cstdio>
#include <cstdlib>

#include "cuda/emulation/block_runner.h"
#include "tests/cuda/check.h"

int main(int argc, char** argv) {
  using namespace batchmill;
  if (argc > 1) emulation::set_schedule_seed(std::strtoull(argv[1], nullptr, 10));
  const int failed = testing::run_checks(argc > 2 ? argv[2] : "");
  const emulation::Statistics& statistics = emulation::statistics();
  std::printf("%llu matrix loads, %llu bank conflicts\n",
              static_cast<unsigned long long>(statistics.matrix_loads),
              static_cast<unsigned long long>(statistics.bank_conflicts));
  return failed == 0 && statistics.bank_conflicts == 0 ? 0 : 1;
}
