#include "cuda/emulation/devices.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <map>
#include <mutex>
#include <new>

namespace batchmill::emulation {
namespace {

constexpr std::size_t kAlignment = 256;
constexpr int kMaxDevices = 8;
constexpr long kDefaultMib = 1024;
constexpr long kDefaultSharedKib = 227;  // of compute capability 9.0

thread_local std::int32_t device_of_thread = 0;

long number_of(const char* variable, long fallback) {
  const char* text = std::getenv(variable);
  return text == nullptr ? fallback : std::strtol(text, nullptr, 10);
}

// "device:count" or "device:count:end" of an environment variable.
struct Fault {
  explicit Fault(const char* variable) {
    const char* text = std::getenv(variable);
    if (text != nullptr && std::sscanf(text, "%d:%ld:%ld", &device, &begin, &end) < 2) device = -1;
  }
  bool is_due(std::int32_t of_device, long count) const {
    return device == of_device && count >= begin && count < end;
  }
  std::int32_t device = -1;
  long begin = 0;
  long end = std::numeric_limits<long>::max();
};

struct Block {
  std::int32_t device;
  std::size_t bytes;
};

struct Device {
  std::size_t used_bytes = 0;
  std::size_t limit_bytes = 0;
  long results = 0;
  long allocations = 0;
  bool is_full = false;
};

struct State {
  State() {
    for (Device& device : devices) device.limit_bytes = bytes;
  }
  std::mutex mutex;
  const int count = static_cast<int>(
      std::clamp<long>(number_of("BATCHMILL_EMULATED_DEVICES", 1), 1, kMaxDevices));
  const std::size_t bytes =
      static_cast<std::size_t>(number_of("BATCHMILL_EMULATED_MIB", kDefaultMib)) << 20;
  const std::size_t shared_bytes =
      static_cast<std::size_t>(number_of("BATCHMILL_EMULATED_SHARED_KIB", kDefaultSharedKib)) << 10;
  const Fault lost{"BATCHMILL_EMULATED_LOST"};
  const Fault full{"BATCHMILL_EMULATED_FULL"};
  const Fault taken{"BATCHMILL_EMULATED_TAKEN"};
  std::array<Device, kMaxDevices> devices;
  std::map<const void*, Block> blocks;
};

State& state() {
  static State state;
  return state;
}

}  // namespace

int num_devices() { return state().count; }

void use_device(std::int32_t device) {
  if (device < 0 || device >= num_devices()) {
    throw CudaError("no such emulated device");
  }
  device_of_thread = device;
}

std::size_t total_bytes() { return state().bytes; }

std::size_t shared_bytes_of_block() { return state().shared_bytes; }

std::size_t free_bytes(std::int32_t device) {
  State& all = state();
  const std::lock_guard lock(all.mutex);
  const Device& found = all.devices.at(static_cast<std::size_t>(device));
  return found.limit_bytes - found.used_bytes;
}

void* take_memory(std::size_t bytes) {
  State& all = state();
  const std::lock_guard lock(all.mutex);
  Device& device = all.devices.at(static_cast<std::size_t>(device_of_thread));
  if (all.taken.is_due(device_of_thread, ++device.allocations)) {
    device.limit_bytes = device.used_bytes;
  }
  if (bytes > device.limit_bytes - device.used_bytes) throw std::bad_alloc();
  void* memory = ::operator new (bytes > 0 ? bytes : 1, std::align_val_t{kAlignment});
  std::memset(memory, 0xFF, bytes);  // NaN in every float format
  device.used_bytes += bytes;
  all.blocks[memory] = {device_of_thread, bytes};
  return memory;
}

void give_memory(void* memory) {
  State& all = state();
  const std::lock_guard lock(all.mutex);
  const auto block = all.blocks.find(memory);
  all.devices.at(static_cast<std::size_t>(block->second.device)).used_bytes -= block->second.bytes;
  std::memset(memory, 0xFF, block->second.bytes);  // for who still has its address
  all.blocks.erase(block);
  ::operator delete (memory, std::align_val_t{kAlignment});
}

void count_result(std::int32_t device) {
  State& all = state();
  const std::lock_guard lock(all.mutex);
  Device& device_state = all.devices.at(static_cast<std::size_t>(device));
  ++device_state.results;
  const bool is_full = all.full.is_due(device, device_state.results);
  if (is_full != device_state.is_full) {
    device_state.is_full = is_full;
    device_state.limit_bytes = is_full ? device_state.used_bytes : all.bytes;
  }
  if (all.lost.is_due(device, device_state.results)) throw CudaError("the emulated device is lost");
}

}  // namespace batchmill::emulation
