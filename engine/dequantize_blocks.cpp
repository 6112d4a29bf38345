#include "engine/dequantize_blocks.h"

#include <array>
#include <bit>
#include <cstdint>
#include <cstring>

#include "engine/dequantize.h"

namespace batchmill {
namespace {

constexpr int kHalfBlock = 16;

int byte_at(const std::byte* source, int index) { return std::to_integer<int>(source[index]); }

float half_at(const std::byte* source) {
  std::uint16_t bits;
  std::memcpy(&bits, source, sizeof(bits));
  return float_from_half(bits);
}

// The 32 elements of bytes that hold two each.
template <typename ValueOf>
void unpack_nibbles(const std::byte* bytes, float* output, ValueOf value_of) {
  for (int i = 0; i < kHalfBlock; ++i) {
    output[i] = value_of(byte_at(bytes, i) & 15, i);
    output[i + kHalfBlock] = value_of(byte_at(bytes, i) >> 4, i + kHalfBlock);
  }
}

// The same with a fifth bit per element in 32 bits in front.
template <typename ValueOf>
void unpack_five_bits(const std::byte* bytes, float* output, ValueOf value_of) {
  std::uint32_t high;
  std::memcpy(&high, bytes, sizeof(high));
  unpack_nibbles(bytes + sizeof(high), output, [&](int low, int i) {
    return value_of(low | static_cast<int>((high >> i) & 1) << 4);
  });
}

// Two bits of each of 256 elements, 64 bytes: element 128 h + 32 k + i is at bits 2k of byte 32 h +
// i.
int two_bits(const std::byte* bytes, int element) {
  return (byte_at(bytes, element / 128 * 32 + element % 32) >> (element / 32 % 4 * 2)) & 3;
}

// Scale and minimum of group 0 to 7 of Q4_K and Q5_K. Bytes 0 to 3 hold the scales and 4 to 7 the
// minima of the first four groups in six bits; of the last four, bytes 8 to 11 hold the low four
// bits (scale low, minimum high) and the free upper bits of the first eight bytes the others.
struct GroupScale {
  int scale;
  int minimum;
};

GroupScale group_scale(const std::byte* scales, int group) {
  if (group < 4) return {byte_at(scales, group) & 63, byte_at(scales, group + 4) & 63};
  const int low = byte_at(scales, group + 4);
  return {(low & 15) | (byte_at(scales, group - 4) >> 6) << 4,
          (low >> 4) | (byte_at(scales, group) >> 6) << 4};
}

// Scale of group 0 to 15 of Q3_K, 0 to 63: the low four bits of groups g and g + 8 share byte g,
// the upper two of groups g, g + 4, g + 8 and g + 12 share byte 8 + g.
int q3_scale(const std::byte* scales, int group) {
  const int low = (byte_at(scales, group % 8) >> (group / 8 * 4)) & 15;
  const int high = (byte_at(scales, 8 + group % 4) >> (group / 4 * 2)) & 3;
  return low | high << 4;
}

// Q4_K and Q5_K: 32 elements at a time. `fifth` is null for four bits.
void dequantize_groups(const std::byte* block, const std::byte* fifth, const std::byte* nibbles,
                       float* output) {
  const float scale = half_at(block);
  const float minimum = half_at(block + 2);
  for (int group = 0; group < 8; ++group) {
    const GroupScale of_group = group_scale(block + 4, group);
    const float step = scale * static_cast<float>(of_group.scale);
    const float offset = minimum * static_cast<float>(of_group.minimum);
    const std::byte* bytes = nibbles + group / 2 * 32;
    const int shift = group % 2 * 4;
    for (int i = 0; i < 32; ++i) {
      int q = (byte_at(bytes, i) >> shift) & 15;
      if (fifth != nullptr) q |= ((byte_at(fifth, i) >> group) & 1) << 4;
      output[32 * group + i] = step * static_cast<float>(q) - offset;
    }
  }
}

}  // namespace

void dequantize_q4_0(const std::byte* block, float* output) {
  const float scale = half_at(block);
  unpack_nibbles(block + 2, output, [&](int q, int) { return scale * static_cast<float>(q - 8); });
}

void dequantize_q4_1(const std::byte* block, float* output) {
  const float scale = half_at(block);
  const float minimum = half_at(block + 2);
  unpack_nibbles(block + 4, output,
                 [&](int q, int) { return scale * static_cast<float>(q) + minimum; });
}

void dequantize_q5_0(const std::byte* block, float* output) {
  const float scale = half_at(block);
  unpack_five_bits(block + 2, output, [&](int q) { return scale * static_cast<float>(q - 16); });
}

void dequantize_q5_1(const std::byte* block, float* output) {
  const float scale = half_at(block);
  const float minimum = half_at(block + 2);
  unpack_five_bits(block + 4, output,
                   [&](int q) { return scale * static_cast<float>(q) + minimum; });
}

void dequantize_q8_0(const std::byte* block, float* output) {
  const float scale = half_at(block);
  for (int i = 0; i < 32; ++i) {
    output[i] = scale * static_cast<float>(static_cast<std::int8_t>(block[2 + i]));
  }
}

void dequantize_iq4_nl(const std::byte* block, float* output) {
  constexpr std::array<float, 16> kLevels = {-127, -104, -83, -65, -49, -35, -22, -10,
                                             1,    13,   25,  38,  53,  69,  89,  113};
  const float scale = half_at(block);
  unpack_nibbles(block + 2, output,
                 [&](int q, int) { return scale * kLevels[static_cast<std::size_t>(q)]; });
}

void dequantize_mxfp4(const std::byte* block, float* output) {
  // Twice the magnitudes, so that they are integers; both zeros are +0.
  constexpr std::array<float, 16> kLevels = {0, 1,  2,  3,  4,  6,  8,  12,
                                             0, -1, -2, -3, -4, -6, -8, -12};
  // Half of 2^(e − 127). Below 2^-126 a float is subnormal: its bits are the mantissa alone.
  const auto exponent = static_cast<std::uint32_t>(byte_at(block, 0));
  const float scale = std::bit_cast<float>(exponent < 2 ? std::uint32_t{0x00200000} << exponent
                                                        : (exponent - 1) << 23);
  unpack_nibbles(block + 1, output,
                 [&](int q, int) { return scale * kLevels[static_cast<std::size_t>(q)]; });
}

void dequantize_q2_k(const std::byte* block, float* output) {
  const float scale = half_at(block + 80);
  const float minimum = half_at(block + 82);
  for (int group = 0; group < 16; ++group) {
    const float step = scale * static_cast<float>(byte_at(block, group) & 15);
    const float offset = minimum * static_cast<float>(byte_at(block, group) >> 4);
    for (int i = 16 * group; i < 16 * group + 16; ++i) {
      output[i] = step * static_cast<float>(two_bits(block + 16, i)) - offset;
    }
  }
}

void dequantize_q3_k(const std::byte* block, float* output) {
  const float scale = half_at(block + 108);
  for (int group = 0; group < 16; ++group) {
    const float step = scale * static_cast<float>(q3_scale(block + 96, group) - 32);
    for (int i = 16 * group; i < 16 * group + 16; ++i) {
      const int third = (byte_at(block, i % 32) >> (i / 32)) & 1;
      output[i] = step * static_cast<float>((two_bits(block + 32, i) | third << 2) - 4);
    }
  }
}

void dequantize_q4_k(const std::byte* block, float* output) {
  dequantize_groups(block, nullptr, block + 16, output);
}

void dequantize_q5_k(const std::byte* block, float* output) {
  dequantize_groups(block, block + 16, block + 48, output);
}

void dequantize_q6_k(const std::byte* block, float* output) {
  const float scale = half_at(block + 208);
  for (int group = 0; group < 16; ++group) {
    const auto of_group = static_cast<std::int8_t>(block[192 + group]);
    const float step = scale * static_cast<float>(of_group);
    for (int i = 16 * group; i < 16 * group + 16; ++i) {
      const int low = (byte_at(block, i / 128 * 64 + i % 64) >> (i / 64 % 2 * 4)) & 15;
      output[i] = step * static_cast<float>((low | two_bits(block + 128, i) << 4) - 32);
    }
  }
}

}  // namespace batchmill
