#include "engine/positions.h"

#include <cmath>

namespace batchmill {

void sinusoidal_position(std::int64_t position, std::int32_t dim, float* output) {
  for (std::int32_t i = 0; i < dim; ++i) {
    const double exponent = static_cast<double>(i / 2 * 2) / dim;
    const double angle = static_cast<double>(position) / std::pow(10000.0, exponent);
    output[i] = static_cast<float>(i % 2 == 0 ? std::sin(angle) : std::cos(angle));
  }
}

}  // namespace batchmill
