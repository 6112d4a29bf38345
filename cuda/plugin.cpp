#include "cuda/plugin.h"

#include <cstring>
#include <exception>
#include <new>
#include <string>

#include "cuda/cuda_backend.h"
#include "cuda/plugin_layout.h"

namespace batchmill {
namespace {

void write_text(const std::string& text, char* target, std::size_t bytes) {
  if (bytes == 0) return;
  const std::size_t length = text.copy(target, bytes - 1);
  target[length] = '\0';
}

// Exceptions end here.
template <typename Function>
bool attempt(const Function& function, char* reason, std::size_t reason_bytes) {
  try {
    function();
    return true;
  } catch (const std::bad_alloc&) {
    write_text("not enough memory on the device", reason, reason_bytes);
  } catch (const std::exception& error) {
    write_text(error.what(), reason, reason_bytes);
  }
  return false;
}

std::int32_t count(char* reason, std::size_t reason_bytes) {
  std::string why;
  const std::int32_t devices = count_devices(&why);
  if (devices == 0) write_text(why, reason, reason_bytes);
  return devices;
}

std::int32_t describe(std::int32_t device, BatchmillCudaFacts* facts, char* reason,
                      std::size_t reason_bytes) {
  const auto read = [&] {
    const DeviceFacts found = device_facts(device);
    write_text(found.name, facts->name, sizeof(facts->name));
    facts->total_bytes = found.total_bytes;
    facts->free_bytes = found.free_bytes;
    facts->shared_bytes = found.shared_bytes;
  };
  return attempt(read, reason, reason_bytes) ? 0 : 1;
}

void* create(std::int32_t device, char* reason, std::size_t reason_bytes) {
  Backend* backend = nullptr;
  attempt([&] { backend = new CudaBackend(device); }, reason, reason_bytes);
  return backend;
}

void destroy(void* backend) { delete static_cast<Backend*>(backend); }

constexpr BatchmillCudaPlugin kPlugin = {
    kCudaAbiVersion, cuda_plugin_layout(), count, describe, create, destroy};

}  // namespace
}  // namespace batchmill

extern "C" __attribute__((visibility("default"))) const BatchmillCudaPlugin*
batchmill_cuda_plugin() {
  return &batchmill::kPlugin;
}
