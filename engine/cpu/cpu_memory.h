// Memory and processors of this machine, as far as this process may use them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "engine/tensor.h"

namespace batchmill {

// Memory aligned to a cache line (large blocks: to a huge page, which the kernel is asked to use).
// Pages become real when first touched. Throws std::bad_alloc.
std::unique_ptr<DeviceBuffer> allocate_cpu_buffer(std::size_t bytes);

// Many blocks of memory with one lifetime, side by side in large buffers, so that small ones lie in
// huge pages too. One thread.
class CpuArena {
 public:
  // Aligned to a cache line; valid as long as the arena.
  void* allocate(std::size_t bytes);

 private:
  std::vector<std::unique_ptr<DeviceBuffer>> buffers_;
  std::size_t used_bytes_ = 0;  // of the last buffer
};

// What could be allocated now: the machine's available memory, or less if the control group has a
// limit.
std::int64_t available_memory_bytes();

// Processors this process may use: its affinity mask and the control group's quota, rounded up. At
// least 1.
std::int32_t available_threads();

}  // namespace batchmill
