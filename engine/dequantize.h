// Rows of GGUF tensors as floats. Pure functions, safe from any thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/ggml_type.h"

namespace batchmill {

// Bytes of `num_elements` elements; a whole number of blocks.
std::size_t row_bytes(GgmlType type, std::int64_t num_elements);

// Writes `num_elements` floats (a whole number of blocks) to `output`. `source` needs no alignment.
// The type must be a supported one (GgmlTypeInfo::supported).
void dequantize_row(GgmlType type, const std::byte* source, std::int64_t num_elements,
                    float* output);

float float_from_half(std::uint16_t bits);
float float_from_bfloat16(std::uint16_t bits);
std::uint16_t bfloat16_from_float(float value);  // to nearest even; NaN stays NaN

}  // namespace batchmill
