// Elements of safetensors arrays as floats. Pure functions, safe from any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "engine/ggml_type.h"
#include "engine/safetensors.h"

namespace batchmill {

// The GGUF type of the same layout, for the dtypes whose elements are read as floats: F32, F16,
// BF16.
std::optional<GgmlType> float_type(const std::string& dtype);

// Writes elements first to first + count − 1 of a tensor of such a dtype to `output`.
void read_floats(const SafetensorsTensor& tensor, std::int64_t first, std::int64_t count,
                 float* output);

}  // namespace batchmill
