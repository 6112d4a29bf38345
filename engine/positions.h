// Positions that are added to embeddings. Pure functions.
#pragma once

#include <cstdint>

namespace batchmill {

// Vaswani et al. 2017: output [dim] = sine of position ÷ 10000^(2i/dim) in dimension 2i, its cosine
// in dimension 2i + 1.
void sinusoidal_position(std::int64_t position, std::int32_t dim, float* output);

}  // namespace batchmill
