#include "engine/dequantize.h"

#include <bit>
#include <cassert>
#include <cstring>

namespace batchmill {
namespace {

constexpr int kBlock = 32;

std::uint16_t load_u16(const std::byte* source) {
  std::uint16_t bits;
  std::memcpy(&bits, source, sizeof(bits));
  return bits;
}

// Block: scale d (f16), 16 bytes: element i in the low half of byte i, element i + 16 in the high
// half. value = d × (q − 8).
void dequantize_q4_0(const std::byte* block, float* output) {
  const float scale = float_from_half(load_u16(block));
  for (int i = 0; i < kBlock / 2; ++i) {
    const int byte = std::to_integer<int>(block[2 + i]);
    output[i] = scale * static_cast<float>((byte & 15) - 8);
    output[i + kBlock / 2] = scale * static_cast<float>((byte >> 4) - 8);
  }
}

// Block: scale d (f16), minimum m (f16), 16 bytes as in Q4_0. value = d × q + m.
void dequantize_q4_1(const std::byte* block, float* output) {
  const float scale = float_from_half(load_u16(block));
  const float minimum = float_from_half(load_u16(block + 2));
  for (int i = 0; i < kBlock / 2; ++i) {
    const int byte = std::to_integer<int>(block[4 + i]);
    output[i] = scale * static_cast<float>(byte & 15) + minimum;
    output[i + kBlock / 2] = scale * static_cast<float>(byte >> 4) + minimum;
  }
}

// Block: scale d (f16), 32 signed bytes. value = d × q.
void dequantize_q8_0(const std::byte* block, float* output) {
  const float scale = float_from_half(load_u16(block));
  for (int i = 0; i < kBlock; ++i) {
    output[i] = scale * static_cast<float>(static_cast<std::int8_t>(block[2 + i]));
  }
}

}  // namespace

std::size_t row_bytes(GgmlType type, std::int64_t num_elements) {
  const GgmlTypeInfo* info = find_type_info(type);
  assert(info != nullptr && num_elements % info->block_elements == 0);
  return static_cast<std::size_t>(num_elements / info->block_elements * info->block_bytes);
}

float float_from_half(std::uint16_t bits) {
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000) << 16;
  const std::uint32_t exponent = (bits >> 10) & 31;
  const std::uint32_t mantissa = bits & 1023;
  if (exponent == 31) {  // infinity, NaN
    return std::bit_cast<float>(sign | 0x7f800000u | (mantissa << 13));
  }
  if (exponent == 0) {  // zero, subnormal: mantissa × 2⁻²⁴
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return sign != 0 ? -magnitude : magnitude;
  }
  return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
}

float float_from_bfloat16(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

std::uint16_t bfloat16_from_float(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<std::uint16_t>((bits >> 16) | 0x40);
  return static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1)) >> 16);
}

void dequantize_row(GgmlType type, const std::byte* source, std::int64_t num_elements,
                    float* output) {
  switch (type) {
    case GgmlType::kF32:
      std::memcpy(output, source, static_cast<std::size_t>(num_elements) * sizeof(float));
      return;
    case GgmlType::kF16:
      for (std::int64_t i = 0; i < num_elements; ++i) {
        output[i] = float_from_half(load_u16(source + 2 * i));
      }
      return;
    case GgmlType::kBF16:
      for (std::int64_t i = 0; i < num_elements; ++i) {
        output[i] = float_from_bfloat16(load_u16(source + 2 * i));
      }
      return;
    case GgmlType::kQ4_0:
      for (std::int64_t i = 0; i < num_elements; i += kBlock, source += 18) {
        dequantize_q4_0(source, output + i);
      }
      return;
    case GgmlType::kQ4_1:
      for (std::int64_t i = 0; i < num_elements; i += kBlock, source += 20) {
        dequantize_q4_1(source, output + i);
      }
      return;
    case GgmlType::kQ8_0:
      for (std::int64_t i = 0; i < num_elements; i += kBlock, source += 34) {
        dequantize_q8_0(source, output + i);
      }
      return;
  }
  assert(false && "unsupported type");
}

}  // namespace batchmill
