#include "engine/dequantize.h"

#include <bit>
#include <cassert>
#include <cstring>

#include "engine/dequantize_blocks.h"

namespace batchmill {
namespace {

std::uint16_t load_u16(const std::byte* source) {
  std::uint16_t bits;
  std::memcpy(&bits, source, sizeof(bits));
  return bits;
}

using BlockFunction = void (*)(const std::byte* block, float* output);

// Null for types that are not made of blocks.
BlockFunction block_function(GgmlType type) {
  switch (type) {
    case GgmlType::kQ4_0:
      return dequantize_q4_0;
    case GgmlType::kQ4_1:
      return dequantize_q4_1;
    case GgmlType::kQ5_0:
      return dequantize_q5_0;
    case GgmlType::kQ5_1:
      return dequantize_q5_1;
    case GgmlType::kQ8_0:
      return dequantize_q8_0;
    case GgmlType::kQ2_K:
      return dequantize_q2_k;
    case GgmlType::kQ3_K:
      return dequantize_q3_k;
    case GgmlType::kQ4_K:
      return dequantize_q4_k;
    case GgmlType::kQ5_K:
      return dequantize_q5_k;
    case GgmlType::kQ6_K:
      return dequantize_q6_k;
    case GgmlType::kIQ4_NL:
      return dequantize_iq4_nl;
    case GgmlType::kMXFP4:
      return dequantize_mxfp4;
    case GgmlType::kF32:
    case GgmlType::kF16:
    case GgmlType::kBF16:
      break;
  }
  return nullptr;
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
    default:
      break;
  }
  const BlockFunction dequantize_block = block_function(type);
  assert(dequantize_block != nullptr && "unsupported type");
  const GgmlTypeInfo* info = find_type_info(type);
  for (std::int64_t i = 0; i < num_elements; i += info->block_elements) {
    dequantize_block(source, output + i);
    source += info->block_bytes;
  }
}

}  // namespace batchmill
