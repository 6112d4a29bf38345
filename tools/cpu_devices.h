// This machine's processors as a device for lines.
#pragma once

#include <string>

#include "actors/daemon.h"
#include "config/daemon_config.h"
#include "engine/cpu/cpu_runner.h"

namespace batchmill {

// What the configuration says of a model, in the backend's terms. Throws ToolError (kExitUsage)
// when it cannot be had here.
CpuOptions cpu_options(const DaemonConfig& config, const ModelConfigEntry& entry);

// Makes each configured model's device; the memory for KV caches is divided among the models.
// Throws ToolError (kExitUsage).
DeviceFactory cpu_devices(const DaemonConfig& config);

}  // namespace batchmill
