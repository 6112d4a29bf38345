// bf16 on the host: the upper half of a float's bits.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace batchmill {

// To the nearest, ties to even; every NaN is 0x7FFF.
inline std::uint16_t bf16_of(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if (std::isnan(value)) return 0x7FFF;
  return static_cast<std::uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

inline float float_of(std::uint16_t bits) {
  return std::bit_cast<float>(std::uint32_t{bits} << 16);
}

}  // namespace batchmill
