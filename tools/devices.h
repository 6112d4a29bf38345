// Which device a configured model runs on: a GPU if the CUDA plugin is there and finds one, else
// this machine's processors. The only place that picks a backend.
#pragma once

#include <string>
#include <vector>

#include "actors/daemon.h"
#include "config/daemon_config.h"
#include "engine/tensor.h"

namespace batchmill {

// Makes each configured model's devices; `models` are all of them, in the configuration's order, so
// that the memory of GPUs is divided before the first one is loaded. "auto" logs one line that says
// why no GPU is used. Throws ToolError (kExitUsage).
DeviceFactory make_devices(const DaemonConfig& config, const std::vector<ServedModel>& models);

// What a model runs on when its last GPU is lost: this machine's processors if its device is
// "auto", else nothing.
DeviceReplacement make_replacement(const DaemonConfig& config);

// What the model's KV cache holds on a GPU.
DType gpu_kv_dtype(const ModelConfigEntry& entry);

// Throws ToolError (kExitUsage) unless the model may run on this machine's processors.
void require_cpu(const ModelConfigEntry& entry, const std::string& command);

std::vector<const ModelConfig*> configs_of(const std::vector<ServedModel>& models);

// For people: the GPUs that a model would run on beside the others, and its memory there; empty if
// none. `models`: beside config.models, null where one cannot be opened. Throws ToolError
// (kExitUsage).
std::string describe_gpus_of(const DaemonConfig& config,
                             const std::vector<const ModelConfig*>& models, std::size_t index);

// For people: the GPUs that models can use, or why there are none.
std::string describe_gpus();

}  // namespace batchmill
