#include "tools/devices.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <vector>

#include "cuda/plugin_loader.h"
#include "tools/cpu_devices.h"
#include "tools/exit_code.h"
#include "tools/gpu_runner.h"

namespace batchmill {
namespace {

// A GPU that a model uses.
struct GpuChoice {
  std::string name;  // "cuda:0"
  GpuOptions options;  // but for `others`
  const CudaPlugin* plugin = nullptr;
};

constexpr char kEmulated[] = "emulated";

// Throws std::runtime_error if the model cannot run on a GPU, whatever GPU there is.
void check_settings(const ModelConfigEntry& entry, const ModelConfig& model) {
  check_gpu_model(model);
  if (entry.dtype != "auto" && entry.dtype != "bf16") {
    throw std::runtime_error(fmt::format("the CUDA backend computes in bf16, not {}", entry.dtype));
  }
  if (entry.kv_dtype == "f32") {
    throw std::runtime_error("the CUDA backend has KV caches in bf16, int8 and fp8, not f32");
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

// Divides the GPUs among all models before the first one is loaded.
class Devices {
 public:
  // `models`: of config.models, in their order; null: not known, which takes no memory.
  Devices(const DaemonConfig& config, const std::vector<const ModelConfig*>& models)
      : config_(config),
        models_(models),
        cpu_(cpu_devices(config)),
        chosen_(models.size()),
        refusals_(models.size()) {
    // Who asks for a device by its name goes first.
    for (const bool is_auto : {false, true}) {
      for (std::size_t i = 0; i < models_.size(); ++i) {
        const std::string& device = config_.models[i].device;
        if (models_[i] != nullptr && device != "cpu" && (device == "auto") == is_auto) choose(i);
      }
    }
  }

  // Throws ToolError (kExitUsage) if a model cannot run where it must.
  void check() const {
    for (std::size_t i = 0; i < models_.size(); ++i) check(i);
  }

  std::vector<Device> make(const ServedModel& served) {
    const std::size_t index = index_of(served.name);
    const ModelConfigEntry& entry = config_.models[index];
    std::vector<Device> devices;
    for (const GpuChoice& gpu : chosen_[index]) {
      try {
        devices.push_back(
            {.name = gpu.name,
             .runner = make_gpu_runner(*gpu.plugin, *served.model, with_others(gpu, index)),
             .can_be_lost = true});
      } catch (const std::runtime_error& error) {
        claims_[gpu.name].erase(index);
        if (entry.device != "auto") {
          refusals_[index] = gpu.name + ": " + error.what();
          check(index);
        }
        leave_out(entry, gpu.name, error.what());
        continue;
      }
      claims_[gpu.name][index] = loaded_gpu_claim(*models_[index], gpu.options);
      spdlog::info(
          "the model {} runs on {}, {}, with a KV cache of {} tokens in {}", served.name, gpu.name,
          gpu.plugin->describe(gpu.options.device).name,
          std::int64_t{devices.back().runner->num_blocks()} * gpu.options.block_size_tokens,
          dtype_name(gpu.options.kv_dtype));
    }
    return devices.empty() ? cpu_(served) : std::move(devices);
  }

  // For people: the model's GPUs and its memory there; empty if it has none.
  std::string describe(std::size_t index) const {
    check(index);
    std::string text;
    for (const GpuChoice& gpu : chosen_[index]) {
      const GpuMemoryPlan plan = plan_gpu_memory(*models_[index], with_others(gpu, index),
                                                 free_bytes(gpu.plugin, gpu.options.device), false);
      text +=
          fmt::format("{}{}, {} MiB as bf16, KV cache {} MiB as {}", text.empty() ? "" : "; ",
                      gpu.name, plan.weight_bytes >> 20, plan.num_blocks * plan.block_bytes >> 20,
                      dtype_name(gpu.options.kv_dtype));
    }
    return text;
  }

 private:
  void check(std::size_t index) const {
    if (refusals_[index].empty()) return;
    const ModelConfigEntry& entry = config_.models[index];
    throw ToolError(kExitUsage, fmt::format("the model {} cannot run on device {}: {}", entry.name,
                                            entry.device, refusals_[index]));
  }
  // Throws std::runtime_error if it must run there.
  static void leave_out(const ModelConfigEntry& entry, const std::string& name,
                        const std::string& reason) {
    if (entry.device != "auto") throw std::runtime_error(name + ": " + reason);
    spdlog::warn("the model {} does not run on {}: {}", entry.name, name, reason);
  }
  static std::int64_t free_bytes(const CudaPlugin* plugin, std::int32_t device) {
    return static_cast<std::int64_t>(plugin->describe(device).free_bytes);
  }

  std::size_t index_of(const std::string& name) const {
    const auto found = std::ranges::find(config_.models, name, &ModelConfigEntry::name);
    if (found == config_.models.end()) throw std::logic_error("a model that is not configured");
    return static_cast<std::size_t>(found - config_.models.begin());
  }

  GpuOptions with_others(const GpuChoice& gpu, std::size_t index) const {
    GpuOptions options = gpu.options;
    const auto claims = claims_.find(gpu.name);
    if (claims == claims_.end()) return options;
    for (const auto& [model, claim] : claims->second) {
      if (model != index) options.others.push_back(claim);
    }
    return options;
  }

  void choose(std::size_t index) {
    const ModelConfigEntry& entry = config_.models[index];
    std::string reason = "none has the memory for it";
    try {
      choose_gpus(index);
      if (!chosen_[index].empty()) return;
    } catch (const std::runtime_error& error) {
      reason = error.what();
    }
    if (entry.device != "auto") {
      refusals_[index] = reason;
      return;
    }
    // Somebody who has a GPU wants to know that it is idle.
    const bool has_gpu = cuda_ != nullptr && cuda_->num_devices() > 0;
    spdlog::log(has_gpu ? spdlog::level::warn : spdlog::level::info,
                "the model {} runs on the CPU, not on a GPU: {}", entry.name, reason);
  }

  // Throws std::runtime_error if there is none that can be used at all.
  void choose_gpus(std::size_t index) {
    const ModelConfigEntry& entry = config_.models[index];
    const ModelConfig& model = *models_[index];
    const bool is_emulated = entry.device == kEmulated;
    auto& plugin = is_emulated ? emulated_ : cuda_;
    if (plugin == nullptr) {
      plugin = std::make_unique<CudaPlugin>(is_emulated ? kEmulatedPluginFile : kCudaPluginFile);
    }
    if (plugin->num_devices() == 0) throw std::runtime_error(plugin->reason());
    check_settings(entry, model);
    check_gpu_blocks(config_.engine.block_size_tokens, gpu_kv_dtype(entry));
    GpuChoice gpu;
    gpu.plugin = plugin.get();
    gpu.options.block_size_tokens = config_.engine.block_size_tokens;
    gpu.options.kv_dtype = gpu_kv_dtype(entry);
    gpu.options.kv_cache_bytes = config_.engine.kv_cache_bytes;
    gpu.options.max_num_seqs = config_.engine.options.max_num_seqs;
    gpu.options.max_num_batched_tokens = config_.engine.options.max_num_batched_tokens;
    for (const std::int32_t number : numbers_of(entry.device, plugin->num_devices())) {
      gpu.options.device = number;
      gpu.name = fmt::format("{}:{}", is_emulated ? kEmulated : "cuda", number);
      try {
        check_gpu_device(model, gpu.options.kv_dtype, gpu.plugin->describe(number));
        plan_gpu_memory(model, with_others(gpu, index), free_bytes(gpu.plugin, number), false);
      } catch (const std::runtime_error& error) {
        leave_out(entry, gpu.name, error.what());
        continue;
      }
      claims_[gpu.name][index] = gpu_claim(model, gpu.options);
      chosen_[index].push_back(gpu);
    }
  }

  DaemonConfig config_;
  std::vector<const ModelConfig*> models_;
  DeviceFactory cpu_;
  std::vector<std::vector<GpuChoice>> chosen_;  // [models]
  std::vector<std::string> refusals_;  // [models] why it cannot run where it must; empty: it can
  // By device, then by model: what they have not taken yet.
  std::map<std::string, std::map<std::size_t, GpuClaim>> claims_;
  std::unique_ptr<CudaPlugin> cuda_;
  std::unique_ptr<CudaPlugin> emulated_;
};

}  // namespace

std::vector<const ModelConfig*> configs_of(const std::vector<ServedModel>& models) {
  std::vector<const ModelConfig*> configs;
  for (const ServedModel& served : models) configs.push_back(&served.model->config());
  return configs;
}

DeviceFactory make_devices(const DaemonConfig& config, const std::vector<ServedModel>& models) {
  // Not before it is asked: by then the data directory is known to be free, and so is the memory
  // that another process with this directory would hold.
  return [config, models, devices = std::shared_ptr<Devices>()](const ServedModel& served) mutable {
    if (devices == nullptr) {
      devices = std::make_shared<Devices>(config, configs_of(models));
      devices->check();
    }
    return devices->make(served);
  };
}

DeviceReplacement make_replacement(const DaemonConfig& config) {
  return [config, cpu = cpu_devices(config), mutex = std::make_shared<std::mutex>()](
             const ServedModel& served) -> std::optional<Device> {
    const auto is_it = [&](const ModelConfigEntry& entry) {
      return entry.name == served.name && entry.device == "auto";
    };
    if (std::ranges::none_of(config.models, is_it)) return std::nullopt;
    const std::lock_guard lock(*mutex);
    try {
      return std::move(cpu(served).front());
    } catch (const std::runtime_error& error) {
      throw std::runtime_error(std::string("the CPU cannot take its place: ") + error.what());
    }
  };
}

DType gpu_kv_dtype(const ModelConfigEntry& entry) {
  if (entry.kv_dtype == "int8") return DType::kI8;
  return entry.kv_dtype == "fp8" ? DType::kF8 : DType::kBF16;
}

void require_cpu(const ModelConfigEntry& entry, const std::string& command) {
  if (entry.device == "auto" || entry.device == "cpu") return;
  throw ToolError(kExitUsage, fmt::format("{} measures the CPU; device {} is not for it", command,
                                          entry.device));
}

std::string describe_gpus_of(const DaemonConfig& config,
                             const std::vector<const ModelConfig*>& models, std::size_t index) {
  return Devices(config, models).describe(index);
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
