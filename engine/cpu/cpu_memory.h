// Memory and processors of this machine, as far as this process may use them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "engine/tensor.h"

namespace batchmill {

// Memory aligned to a cache line (large blocks: to a huge page, which the kernel is asked to use).
// Pages become real when first touched. Throws std::bad_alloc.
std::unique_ptr<DeviceBuffer> allocate_cpu_buffer(std::size_t bytes);

// What could be allocated now: the machine's available memory, or less if the control group has a
// limit.
std::int64_t available_memory_bytes();

// Processors this process may use: its affinity mask and the control group's quota, rounded up. At
// least 1.
std::int32_t available_threads();

}  // namespace batchmill
