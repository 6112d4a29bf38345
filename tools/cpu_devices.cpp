#include "tools/cpu_devices.h"

#include <fmt/format.h>

#include <memory>
#include <new>

#include "engine/cpu/cpu_encoder.h"
#include "tools/exit_code.h"

namespace batchmill {
namespace {

CpuDType parse_dtype(const std::string& text) {
  if (text == "auto") return CpuDType::kAuto;
  if (text == "f32") return CpuDType::kF32;
  if (text == "bf16") return CpuDType::kBF16;
  if (text == "int8") return CpuDType::kInt8;
  throw ToolError(kExitUsage,
                  fmt::format("dtype {}: not supported yet; auto, f32, bf16 and int8 are", text));
}

}  // namespace

CpuOptions cpu_options(const DaemonConfig& config, const ModelConfigEntry& entry) {
  CpuOptions options;
  options.dtype = parse_dtype(entry.dtype);
  if (entry.kv_dtype == "fp8") {
    throw ToolError(kExitUsage,
                    fmt::format("the model {} cannot run on the CPU: kv_dtype fp8 is for "
                                "GPUs; here it is auto, f32, bf16 or int8",
                                entry.name));
  }
  options.kv_dtype = parse_dtype(entry.kv_dtype);
  options.threads = config.engine.threads;
  options.block_size_tokens = config.engine.block_size_tokens;
  options.kv_cache_bytes = config.engine.kv_cache_bytes;
  options.deterministic = config.engine.deterministic;
  return options;
}

DeviceFactory cpu_devices(const DaemonConfig& config) {
  // Models that still want memory: what is left then is divided evenly.
  auto waiting = std::make_shared<std::int64_t>(static_cast<std::int64_t>(config.models.size()));
  return [config, waiting](const ServedModel& served) {
    for (const ModelConfigEntry& entry : config.models) {
      if (entry.name != served.name) continue;
      CpuOptions options = cpu_options(config, entry);
      if (options.kv_cache_bytes == 0 && *waiting > 1) {
        options.kv_cache_bytes =
            plan_cpu(served.model->config(), options).kv_cache_bytes / *waiting;
      }
      if (*waiting > 1) --*waiting;
      try {
        if (served.model->config().encoder) {
          return only({.name = "cpu:0",
                       .encoder = make_cpu_encoder(served.model->tensors(), served.model->config(),
                                                   options)});
        }
        return only(
            {"cpu:0", make_cpu_runner(served.model->tensors(), served.model->config(), options)});
      } catch (const std::bad_alloc&) {
        throw ToolError(kExitUsage, fmt::format("not enough memory for the model {}", served.name));
      } catch (const std::runtime_error& error) {
        throw ToolError(kExitUsage,
                        fmt::format("the model {} cannot run: {}", served.name, error.what()));
      }
    }
    throw std::logic_error("a model that is not configured");
  };
}

}  // namespace batchmill
