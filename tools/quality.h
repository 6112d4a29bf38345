// What the types in use cost in quality: perplexity on a fixed text, beside that of the f32 and the
// bf16 path. For `bench --quality`. One thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/cpu/cpu_runner.h"
#include "engine/model.h"

namespace batchmill {

// One path through the model over the whole text.
struct QualityRun {
  CpuPlan plan;
  std::string device;
  double perplexity = 0.0;
  double agreement = 0.0;  // share of positions whose most likely token is that of the f32 path
};

struct QualityReport {
  std::int64_t num_tokens = 0;  // predicted
  std::int32_t window_tokens = 0;  // the text is cut into sequences of this length
  // First f32, then bf16, then the path in use; before it, if its KV cache is int8, the same with a
  // cache of the activations' type. Each path once.
  std::vector<QualityRun> runs;
};

// Loads the model once per path, one after the other. Throws std::runtime_error as
// make_cpu_runner() does, or if the model has no tokenizer.
QualityReport measure_quality(const Model& model, const CpuOptions& options);

// English text on this program, in prose.
extern const char* const kQualityText;

}  // namespace batchmill
