// The devices that emulation pretends to have, their memory, and what tests let go wrong with them.
// Any thread may call anything; each thread has a current device, 0 at first.
//
// A plugin has no other way to be told than the environment:
//   BATCHMILL_EMULATED_DEVICES=2      how many there are
//   BATCHMILL_EMULATED_MIB=64         memory of each
//   BATCHMILL_EMULATED_SHARED_KIB=99  shared memory that a block may have (227: that of 9.0)
//   BATCHMILL_EMULATED_LOST=1:20      device 1 fails from the 20th time somebody wants results
//   BATCHMILL_EMULATED_FULL=0:20      others take what is free on device 0 then
//   BATCHMILL_EMULATED_FULL=0:20:90   … and give it back at the 90th time
//   BATCHMILL_EMULATED_TAKEN=0:20     others take what is free on device 0 at the 20th allocation
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/stream.h"

namespace batchmill::emulation {

int num_devices();

// Throws CudaError if there is no such device.
void use_device(std::int32_t device);

std::size_t total_bytes();
std::size_t shared_bytes_of_block();
std::size_t free_bytes(std::int32_t device);

// Memory of the current device, filled with NaNs. Throws std::bad_alloc.
void* take_memory(std::size_t bytes);
void give_memory(void* memory);

// Somebody waits for results of the device, as each step does: the moment at which it fails, if it
// is to. Throws CudaError.
void count_result(std::int32_t device);

}  // namespace batchmill::emulation
