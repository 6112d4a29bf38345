// Loads batchmill_cuda.so, if it is there and there is a GPU. The program itself knows nothing of
// CUDA. Any thread; a loaded plugin stays for the life of the process.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "engine/backend.h"

struct BatchmillCudaPlugin;

namespace batchmill {

inline constexpr char kCudaPluginFile[] = "batchmill_cuda.so";
// The same backend on emulated threads, which builds with tests make: slow, for tests of everything
// around the backend.
inline constexpr char kEmulatedPluginFile[] = "batchmill_cuda_emulated.so";

struct CudaDeviceFacts {
  std::string name;
  std::uint64_t total_bytes = 0;
  std::uint64_t free_bytes = 0;
  std::int32_t shared_bytes = 0;  // that a block may have
};

class CudaPlugin {
 public:
  // The plugin of that file name, beside the running program or, if BATCHMILL_PLUGINS is set, in
  // the folder it names. Without devices if it is not there or finds none: reason() says why.
  explicit CudaPlugin(const std::string& file_name);

  std::int32_t num_devices() const { return num_devices_; }
  const std::string& reason() const { return reason_; }

  // Both throw std::runtime_error. 0 ≤ device < num_devices().
  CudaDeviceFacts describe(std::int32_t device) const;
  std::unique_ptr<Backend> create(std::int32_t device) const;

 private:
  const BatchmillCudaPlugin* plugin_ = nullptr;
  std::int32_t num_devices_ = 0;
  std::string reason_;
};

}  // namespace batchmill
