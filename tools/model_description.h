// What `batchmill inspect` tells about a model, as JSON; tools/README.md lists the keys.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "engine/cpu/cpu_runner.h"
#include "engine/model.h"
#include "queue/wire.h"

namespace batchmill {

// A model that can run; `plan` is what would be loaded on this machine.
Json describe_model(const Model& model, const CpuPlan& plan, std::int32_t block_size_tokens);

// A file or folder that cannot: `reason`, and what can be read of it; its shapes, if they are not
// what is wrong. Null if nothing can be read.
Json describe_refused_model(const std::string& path, const std::string& reason,
                            const CpuOptions& options);

// Parts of both. Shapes, size, and what fits on this machine:
void describe_shapes(const ModelConfig& config, const CpuPlan& plan, std::int32_t block_size_tokens,
                     Json* json);
// Bytes of all tensors and the number of each type.
using TypeAndBytes = std::pair<std::string, std::uint64_t>;
Json tensor_counts(const std::vector<TypeAndBytes>& tensors);

}  // namespace batchmill
