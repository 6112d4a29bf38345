// What batchmill_cuda.so offers to the program that loads it: one C function that returns a table.
// A Backend is a C++ object on both sides, so plugin and program must be of one build; `layout`
// tells if they are (cuda/plugin_layout.h).
#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/backend.h"

extern "C" {

struct BatchmillCudaFacts {
  char name[128];
  std::uint64_t total_bytes;
  std::uint64_t free_bytes;
  std::int32_t shared_bytes;  // that a block may have
};

struct BatchmillCudaPlugin {
  std::uint32_t abi_version;
  std::uint64_t layout;

  // The number of devices that can be used; if 0, why, in `reason`.
  std::int32_t (*count_devices)(char* reason, std::size_t reason_bytes);
  // 0, or an error in `reason`.
  std::int32_t (*describe_device)(std::int32_t device, BatchmillCudaFacts* facts, char* reason,
                                  std::size_t reason_bytes);
  // A batchmill::Backend that the caller owns; or null and an error in `reason`.
  void* (*create)(std::int32_t device, char* reason, std::size_t reason_bytes);
  void (*destroy)(void* backend);
};

using BatchmillCudaPluginFunction = const BatchmillCudaPlugin* (*)();

}  // extern "C"

namespace batchmill {

inline constexpr std::uint32_t kCudaAbiVersion = 2;
inline constexpr char kCudaPluginFunction[] = "batchmill_cuda_plugin";

}  // namespace batchmill
