// Runs the blocks of a grid one after the other, on the calling thread. The threads of a block
// ("lanes" here) are fibers that give way at barriers and warp collectives, in an order that a seed
// decides. What a GPU would answer with a hang or a wrong result is an EmulationError: lanes at
// different barriers, a lane that ends while others wait for it, writes around a shared array,
// asynchronous copies that nobody waited for, misaligned accesses.
//
// Built with a sanitizer, the lanes are fibers of that sanitizer: AddressSanitizer sees accesses
// around shared arrays, ThreadSanitizer races between lanes and between blocks. Only __syncthreads
// and __syncwarp order memory accesses; shuffles and matrix instructions do not.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>

#include "cuda/emulation/language.h"

// For functions that handle other lanes' memory on behalf of the hardware.
#define BATCHMILL_HARDWARE __attribute__((no_sanitize("thread"), noinline))

namespace batchmill::emulation {

// Where a kernel calls something.
struct Site {
  const char* file;
  int line;
};
#define BATCHMILL_SITE batchmill::emulation::Site site = {__builtin_FILE(), __builtin_LINE()}

class EmulationError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

inline constexpr int kWarpLanes = 32;
inline constexpr std::size_t kMaxStaticSharedBytes = 48 << 10;
inline constexpr unsigned kMaxBlockLanes = 1024;

// Counted by the matrix loads of all kernels of this thread.
struct Statistics {
  std::uint64_t matrix_loads = 0;
  std::uint64_t bank_conflicts = 0;  // wavefronts beyond one per 8×8 matrix
};
Statistics& statistics();

// The order of lanes, warps and blocks in this thread's grids. 0: ascending.
void set_schedule_seed(std::uint64_t seed);

// Throws EmulationError.
void run_grid(dim3 grid, dim3 block, std::size_t dynamic_shared_bytes, void (*kernel)(void*),
              void* arguments);

// The same of a kernel whose every lane must wait for the kernel before it.
void run_overlapped_grid(dim3 grid, dim3 block, std::size_t dynamic_shared_bytes,
                         void (*kernel)(void*), void* arguments);

// From here: called by lanes.
void count_wait();
// Fails where the lane has to wait for the kernel before its own, and has not.
void check_waited(Site site);
void synchronize_block(Site site);

// What the hardware does once all lanes of a warp have arrived; records [32] are what they handed
// in.
using WarpOperation = void (*)(void* const* records);
void run_warp_operation(void* record, WarpOperation operation, Site site);
void synchronize_warp(Site site);

// The array that belongs to `tag` in this block, filled with NaNs when it is first asked for.
void* shared_array(const void* tag, std::size_t bytes);
void* dynamic_shared();

// 4 or 16 bytes that land when they are waited for; until then the target holds NaNs.
void start_copy(void* shared, const void* global, std::size_t bytes, bool is_valid, Site site);
void commit_copies(Site site);
void wait_for_copies(unsigned pending_groups);

unsigned lane_of_warp();

// Abandons the grid.
[[noreturn]] void fail(const char* what, Site site);
void check_alignment(const void* address, std::size_t bytes, Site site);

}  // namespace batchmill::emulation
