// Defaults that a model ships for sampling; absent: OpenAI's.
#pragma once

#include <cstdint>
#include <optional>

namespace batchmill {

struct GenerationDefaults {
  std::optional<float> temperature;
  std::optional<float> top_p;
  std::optional<std::int32_t> top_k;
  std::optional<float> min_p;
  std::optional<float> repetition_penalty;
};

}  // namespace batchmill
