// Which device a configured model runs on: a GPU if the CUDA plugin is there and finds one, else
// this machine's processors. The only place that picks a backend.
#pragma once

#include <string>

#include "actors/daemon.h"
#include "config/daemon_config.h"

namespace batchmill {

// Makes each configured model's devices. "auto" logs one line that says why no GPU is used. Throws
// ToolError (kExitUsage).
DeviceFactory make_devices(const DaemonConfig& config);

// Throws ToolError (kExitUsage) unless the model may run on this machine's processors.
void require_cpu(const ModelConfigEntry& entry, const std::string& command);

// For people: the GPUs that the model would run on, and its memory there; empty if none. Throws
// ToolError (kExitUsage).
std::string describe_gpus_of(const DaemonConfig& config, const ModelConfigEntry& entry,
                             const ModelConfig& model);

// For people: the GPUs that models can use, or why there are none.
std::string describe_gpus();

}  // namespace batchmill
