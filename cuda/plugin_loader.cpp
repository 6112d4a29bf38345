#include "cuda/plugin_loader.h"

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <stdexcept>

#include "cuda/plugin_layout.h"

namespace batchmill {
namespace {

constexpr std::size_t kReasonBytes = 512;

std::filesystem::path folder_of_plugins() {
  if (const char* folder = std::getenv("BATCHMILL_PLUGINS"); folder != nullptr && *folder != 0) {
    return folder;
  }
  std::error_code error;
  return std::filesystem::read_symlink("/proc/self/exe", error).parent_path();
}

// The driver's library, which the plugin would ask for. Looked for before the plugin is loaded,
// since that maps the 200 MB of cuBLASLt as well.
bool has_driver() {
  void* driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
  if (driver == nullptr) return false;
  dlclose(driver);
  return true;
}

}  // namespace

CudaPlugin::CudaPlugin(const std::string& file_name) {
  const std::filesystem::path file = folder_of_plugins() / file_name;
  std::error_code error;
  if (!std::filesystem::exists(file, error)) {
    reason_ = "there is no " + file.string();
    return;
  }
  if (file_name == kCudaPluginFile && !has_driver()) {
    reason_ = "there is no NVIDIA driver (libcuda.so.1)";
    return;
  }
  void* library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    reason_ = dlerror();
    return;
  }
  const auto get =
      reinterpret_cast<BatchmillCudaPluginFunction>(dlsym(library, kCudaPluginFunction));
  const BatchmillCudaPlugin* plugin = get == nullptr ? nullptr : get();
  if (plugin == nullptr || plugin->abi_version != kCudaAbiVersion ||
      plugin->layout != cuda_plugin_layout()) {
    reason_ = file.string() + " is of another build";
    return;
  }
  char reason[kReasonBytes] = {};
  num_devices_ = plugin->count_devices(reason, sizeof(reason));
  if (num_devices_ > 0) {
    plugin_ = plugin;
  } else {
    reason_ = reason;
  }
}

CudaDeviceFacts CudaPlugin::describe(std::int32_t device) const {
  BatchmillCudaFacts facts{};
  char reason[kReasonBytes] = {};
  if (plugin_->describe_device(device, &facts, reason, sizeof(reason)) != 0) {
    throw std::runtime_error(reason);
  }
  return {facts.name, facts.total_bytes, facts.free_bytes, facts.shared_bytes};
}

std::unique_ptr<Backend> CudaPlugin::create(std::int32_t device) const {
  char reason[kReasonBytes] = {};
  void* backend = plugin_->create(device, reason, sizeof(reason));
  if (backend == nullptr) throw std::runtime_error(reason);
  return std::unique_ptr<Backend>(static_cast<Backend*>(backend));
}

}  // namespace batchmill
