#include "tools/devices.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <charconv>
#include <memory>
#include <new>
#include <stdexcept>

#include "cuda/plugin_loader.h"
#include "tools/cpu_devices.h"
#include "tools/exit_code.h"
#include "tools/gpu_runner.h"

namespace batchmill {
namespace {

constexpr char kEmulated[] = "emulated";

const ModelConfigEntry& entry_of(const DaemonConfig& config, const std::string& name) {
  for (const ModelConfigEntry& entry : config.models) {
    if (entry.name == name) return entry;
  }
  throw std::logic_error("a model that is not configured");
}

// Throws std::runtime_error if the model cannot run on a GPU, whatever GPU there is.
void check_settings(const ModelConfigEntry& entry, const ModelConfig& model) {
  check_gpu_model(model);
  for (const std::string& dtype : {entry.dtype, entry.kv_dtype}) {
    if (dtype == "auto" || dtype == "bf16") continue;
    throw std::runtime_error(
        fmt::format("the CUDA backend computes in bf16 with a bf16 KV cache, not {}", dtype));
  }
}

// "cuda:1" → 1; 0 for names without a number.
std::int32_t number_of(const std::string& device) {
  std::int32_t number = 0;
  const std::size_t colon = device.find(':');
  if (colon != std::string::npos) {
    std::from_chars(device.data() + colon + 1, device.data() + device.size(), number);
  }
  return number;
}

class Devices {
 public:
  explicit Devices(const DaemonConfig& config)
      : config_(config),
        cpu_(cpu_devices(config)),
        waiting_(static_cast<std::int32_t>(config.models.size())) {}

  Device make(const ServedModel& served) {
    const ModelConfigEntry& entry = entry_of(config_, served.name);
    const std::int32_t sharers = waiting_ > 1 ? waiting_-- : 1;
    if (entry.device == "cpu") return cpu_(served);
    try {
      return make_on_gpu(entry, served, sharers);
    } catch (const std::bad_alloc&) {
      return without_gpu(entry, served, "the model does not fit its memory");
    } catch (const std::runtime_error& error) {
      return without_gpu(entry, served, error.what());
    }
  }

 private:
  Device without_gpu(const ModelConfigEntry& entry, const ServedModel& served,
                     const std::string& reason) {
    if (entry.device != "auto") {
      throw ToolError(kExitUsage, fmt::format("device {}: {}", entry.device, reason));
    }
    spdlog::info("the model {} runs on the CPU, not on a GPU: {}", served.name, reason);
    return cpu_(served);
  }

  Device make_on_gpu(const ModelConfigEntry& entry, const ServedModel& served,
                     std::int32_t sharers) {
    check_settings(entry, served.model->config());
    const bool is_emulated = entry.device == kEmulated;
    auto& plugin = is_emulated ? emulated_ : cuda_;
    if (plugin == nullptr) {
      plugin = std::make_unique<CudaPlugin>(is_emulated ? kEmulatedPluginFile : kCudaPluginFile);
    }
    if (plugin->num_devices() == 0) throw std::runtime_error(plugin->reason());
    GpuOptions options;
    options.device = number_of(entry.device);
    if (options.device >= plugin->num_devices()) {
      throw std::runtime_error(fmt::format("there are {} GPUs", plugin->num_devices()));
    }
    options.block_size_tokens = config_.engine.block_size_tokens;
    options.kv_cache_bytes = config_.engine.kv_cache_bytes;
    options.sharers = sharers;
    options.max_num_seqs = config_.engine.options.max_num_seqs;
    options.max_num_batched_tokens = config_.engine.options.max_num_batched_tokens;
    return Device{fmt::format("{}:{}", is_emulated ? kEmulated : "cuda", options.device),
                  make_gpu_runner(*plugin, *served.model, options)};
  }

  DaemonConfig config_;
  DeviceFactory cpu_;
  std::int32_t waiting_;  // models without a device
  std::unique_ptr<CudaPlugin> cuda_;
  std::unique_ptr<CudaPlugin> emulated_;
};

}  // namespace

DeviceFactory make_devices(const DaemonConfig& config) {
  auto devices = std::make_shared<Devices>(config);
  return [devices](const ServedModel& served) { return devices->make(served); };
}

void require_cpu(const ModelConfigEntry& entry, const std::string& command) {
  if (entry.device == "auto" || entry.device == "cpu") return;
  throw ToolError(kExitUsage, fmt::format("{} measures the CPU; device {} is not for it", command,
                                          entry.device));
}

std::string describe_gpus() {
  const CudaPlugin plugin(kCudaPluginFile);
  if (plugin.num_devices() == 0) return "not used: " + plugin.reason();
  std::string text;
  for (std::int32_t device = 0; device < plugin.num_devices(); ++device) {
    const CudaDeviceFacts facts = plugin.describe(device);
    text += fmt::format("{}cuda:{} {}, {} of {} MiB free", device > 0 ? "; " : "", device,
                        facts.name, facts.free_bytes >> 20, facts.total_bytes >> 20);
  }
  return text;
}

}  // namespace batchmill
