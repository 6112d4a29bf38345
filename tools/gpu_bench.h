// `batchmill bench` on a GPU: the same workloads, with what can be told from outside of its steps.
#pragma once

#include <string>

#include "config/daemon_config.h"
#include "queue/wire.h"
#include "tools/bench_workloads.h"
#include "tools/served_models.h"

namespace batchmill {

// Runs the workloads on the GPU that the model's device names, the first of several. Throws
// ToolError (kExitUsage).
Json bench_gpu(const DaemonConfig& config, const ServedModel& served, const BenchFlags& flags);

// Text of it, several lines.
std::string gpu_bench_text(const Json& report);

}  // namespace batchmill
