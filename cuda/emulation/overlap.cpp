// Kernels that may begin before the one ahead has ended. Compiled without instrumentation, as
// block_runner.cpp is.
#include <bitset>
#include <cstdint>

#include "cuda/emulation/block_runner.h"

namespace batchmill::emulation {
namespace {

struct Grid {
  bool is_overlapped = false;
  std::uint64_t waits = 0;
  uint3 block{};  // that runs
  std::bitset<kMaxBlockLanes> waited;  // its lanes
};
thread_local Grid current;

unsigned rank() { return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z); }

// Blocks run one after the other.
void enter_block() {
  const uint3& last = current.block;
  if (last.x == blockIdx.x && last.y == blockIdx.y && last.z == blockIdx.z) return;
  current.block = blockIdx;
  current.waited.reset();
}

}  // namespace

void count_wait() {
  enter_block();
  ++current.waits;
  current.waited[rank()] = true;
}

void check_waited(Site site) {
  if (!current.is_overlapped) return;
  enter_block();
  if (!current.waited[rank()]) fail("an access before the kernel ahead is waited for", site);
}

void run_overlapped_grid(dim3 grid, dim3 block, std::size_t dynamic_shared_bytes,
                         void (*kernel)(void*), void* arguments) {
  current = {};
  current.is_overlapped = true;
  try {
    run_grid(grid, block, dynamic_shared_bytes, kernel, arguments);
  } catch (...) {
    current.is_overlapped = false;
    throw;
  }
  current.is_overlapped = false;
  const std::uint64_t lanes = std::uint64_t{grid.x} * grid.y * grid.z * block.x * block.y * block.z;
  if (current.waits != lanes) {
    throw EmulationError("a kernel that did not wait for the one before it");
  }
}

}  // namespace batchmill::emulation
