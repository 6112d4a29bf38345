#include "tools/devices.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <charconv>
#include <memory>
#include <new>
#include <numeric>
#include <stdexcept>
#include <vector>

#include "cuda/plugin_loader.h"
#include "tools/cpu_devices.h"
#include "tools/exit_code.h"
#include "tools/gpu_runner.h"

namespace batchmill {
namespace {

// A GPU that a model can use.
struct GpuChoice {
  std::string name;
  GpuOptions options;
  GpuMemoryPlan plan;
  const CudaPlugin* plugin = nullptr;
};

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

// The one that the name says, or all.
std::vector<std::int32_t> numbers_of(const std::string& name, std::int32_t count) {
  const std::size_t colon = name.find(':');
  if (colon == std::string::npos) {
    std::vector<std::int32_t> all(static_cast<std::size_t>(count));
    std::iota(all.begin(), all.end(), 0);
    return all;
  }
  std::int32_t number = 0;
  std::from_chars(name.data() + colon + 1, name.data() + name.size(), number);
  if (number >= count) {
    throw std::runtime_error(
        count == 1 ? "there is one GPU, cuda:0"
                   : fmt::format("there are {} GPUs, from cuda:0 to cuda:{}", count, count - 1));
  }
  return {number};
}

class Devices {
 public:
  explicit Devices(const DaemonConfig& config)
      : config_(config),
        cpu_(cpu_devices(config)),
        waiting_(static_cast<std::int32_t>(config.models.size())) {}

  std::vector<Device> make(const ServedModel& served) {
    const ModelConfigEntry& entry = entry_of(config_, served.name);
    const std::int32_t sharers = waiting_ > 1 ? waiting_-- : 1;
    std::vector<Device> devices;
    for (const GpuChoice& gpu : choose(entry, served.model->config(), sharers)) {
      try {
        devices.push_back({.name = gpu.name,
                           .runner = make_gpu_runner(*gpu.plugin, *served.model, gpu.options),
                           .can_be_lost = true});
      } catch (const std::runtime_error& error) {
        leave_out(entry, gpu.name, error.what());
        continue;
      }
      spdlog::info(
          "the model {} runs on {}, {}, with a KV cache of {} tokens", served.name, gpu.name,
          gpu.plugin->describe(gpu.options.device).name,
          std::int64_t{devices.back().runner->num_blocks()} * gpu.options.block_size_tokens);
    }
    return devices.empty() ? cpu_(served) : std::move(devices);
  }

  // None: the CPU.
  std::vector<GpuChoice> choose(const ModelConfigEntry& entry, const ModelConfig& model,
                                std::int32_t sharers) {
    std::vector<GpuChoice> chosen;
    if (entry.device == "cpu") return chosen;
    std::string reason;
    try {
      return gpus_of(entry, model, sharers);
    } catch (const std::runtime_error& error) {
      reason = error.what();
    }
    if (entry.device != "auto") refuse(entry, reason);
    // Somebody who has a GPU wants to know that it is idle.
    const bool has_gpu = cuda_ != nullptr && cuda_->num_devices() > 0;
    spdlog::log(has_gpu ? spdlog::level::warn : spdlog::level::info,
                "the model {} runs on the CPU, not on a GPU: {}", entry.name, reason);
    return chosen;
  }

 private:
  [[noreturn]] static void refuse(const ModelConfigEntry& entry, const std::string& reason) {
    throw ToolError(kExitUsage, fmt::format("the model {} cannot run on device {}: {}", entry.name,
                                            entry.device, reason));
  }
  static void leave_out(const ModelConfigEntry& entry, const std::string& name,
                        const std::string& reason) {
    if (entry.device != "auto") refuse(entry, name + ": " + reason);
    spdlog::warn("the model {} does not run on {}: {}", entry.name, name, reason);
  }

  // Throws std::runtime_error if there is none that can be used at all.
  std::vector<GpuChoice> gpus_of(const ModelConfigEntry& entry, const ModelConfig& model,
                                 std::int32_t sharers) {
    const bool is_emulated = entry.device == kEmulated;
    auto& plugin = is_emulated ? emulated_ : cuda_;
    if (plugin == nullptr) {
      plugin = std::make_unique<CudaPlugin>(is_emulated ? kEmulatedPluginFile : kCudaPluginFile);
    }
    if (plugin->num_devices() == 0) throw std::runtime_error(plugin->reason());
    check_settings(entry, model);
    GpuOptions options;
    options.block_size_tokens = config_.engine.block_size_tokens;
    options.kv_cache_bytes = config_.engine.kv_cache_bytes;
    options.sharers = sharers;
    options.max_num_seqs = config_.engine.options.max_num_seqs;
    options.max_num_batched_tokens = config_.engine.options.max_num_batched_tokens;
    std::vector<GpuChoice> gpus;
    for (const std::int32_t number : numbers_of(entry.device, plugin->num_devices())) {
      options.device = number;
      const std::string name = fmt::format("{}:{}", is_emulated ? kEmulated : "cuda", number);
      try {
        const auto free_bytes = static_cast<std::int64_t>(plugin->describe(number).free_bytes);
        gpus.push_back(
            {name, options, plan_gpu_memory(model, options, free_bytes, false), plugin.get()});
      } catch (const std::runtime_error& error) {
        leave_out(entry, name, error.what());
      }
    }
    return gpus;
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

std::string describe_gpus_of(const DaemonConfig& config, const ModelConfigEntry& entry,
                             const ModelConfig& model) {
  std::string text;
  for (const GpuChoice& gpu : Devices(config).choose(entry, model, 1)) {
    const std::int64_t cache_bytes = gpu.plan.num_blocks * gpu.plan.block_bytes;
    text += fmt::format("{}{}, {} MiB as bf16, KV cache {} MiB", text.empty() ? "" : "; ", gpu.name,
                        gpu.plan.weight_bytes >> 20, cache_bytes >> 20);
  }
  return text;
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
