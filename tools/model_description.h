// What `batchmill inspect` tells about a model, as JSON; tools/README.md lists the keys.
#pragma once

#include <string>

#include "engine/cpu/cpu_runner.h"
#include "engine/model.h"
#include "queue/wire.h"

namespace batchmill {

// A model that can run; `plan` is what would be loaded on this machine.
Json describe_model(const Model& model, const CpuPlan& plan, std::int32_t block_size_tokens);

// A file that cannot: what can be read of it, and `reason`. Null if not even that can be read.
Json describe_refused_model(const std::string& path, const std::string& reason);

}  // namespace batchmill
