// Keys and values of one byte per element: int8, or FP8 with four bits of exponent and three of
// mantissa (e4m3). Included by kernels alone.
//
// A head's K or V of a token is a row of bytes and a float32 scale, the row's largest magnitude ÷
// that of a byte. Rows that are not finite have NaN as scale. A key's scale multiplies its scores,
// a value's scale the weights of its row, so elements are never multiplied.
//
// In int8 an element's error is a share of the row's largest. Therefore keys are mixed before,
// which spreads what a few large elements have over all: they are multiplied by the Hadamard matrix
// of their size, as are the queries, so that their products are what they were. In FP8 an element's
// error is a share of itself: mixing would give small ones the errors of large ones.
//
// Matrix loads hand out bytes in fours, of which widen_bytes() makes two operands of bf16 products.
// Rows of K are stored so that these are the operands that queries meet: element i of sixteen is
// byte 2 (i % 8) + i / 8. Rows of V lie in order, and transposed loads give a lane two columns of
// four keys: one operand has the even columns of sixteen, the other one the odd columns.
#pragma once

#include "cuda/devrt.h"
#include "engine/tensor.h"

namespace batchmill {

template <DType kKv>
inline constexpr float kLargestByte = kKv == DType::kI8 ? 127.0f : 448.0f;

template <DType kKv>
inline constexpr bool kMixesKeys = kKv == DType::kI8;

struct WideBytes {
  unsigned even;  // bytes 0 and 2 in bf16
  unsigned odd;  // bytes 1 and 3
};

template <DType kKv>
__device__ __forceinline__ WideBytes widen_bytes(unsigned bytes) {
  if constexpr (kKv == DType::kI8) {
    // From 128 on bf16 count in ones: 128 + the seven low bits, less 128, or 256 for the sign.
    const auto widen = [](unsigned pair) {
      return multiply_add_bf16((pair & 0x007F007Fu) | 0x43004300u, 0x3F803F80u,
                               (pair & 0x00800080u) | 0xC300C300u);
    };
    return {widen(bytes), widen(bytes >> 8)};
  } else {
    // All bits at their places in bf16, where exponents count from another number: times 2^120.
    const unsigned even = (bytes << 4 & 0x07F007F0u) | (bytes << 8 & 0x80008000u);
    const unsigned odd = (bytes >> 4 & 0x07F007F0u) | (bytes & 0x80008000u);
    return {multiply_add_bf16(even, 0x7B807B80u, 0), multiply_add_bf16(odd, 0x7B807B80u, 0)};
  }
}

// The nearest byte, ties to even. |value| is at most kLargestByte, but for a rounding.
template <DType kKv>
__device__ __forceinline__ unsigned narrow_to_byte(float value) {
  constexpr float kRound = 12582912.0f;  // 1.5 × 2²³: adding it rounds to an integer
  if constexpr (kKv == DType::kI8) {
    return __float_as_uint(value + kRound) & 0xFFu;
  } else {
    const unsigned bits = __float_as_uint(value);
    const unsigned magnitude = bits & 0x7FFFFFFFu;
    const unsigned normal =
        ((magnitude + 0x7FFFFu + (magnitude >> 20 & 1u)) >> 20) - ((127u - 7u) << 3);
    // Below 2^-6 bytes count in steps of 2^-9.
    const unsigned small = __float_as_uint(__uint_as_float(magnitude) * 512.0f + kRound) & 0xFu;
    return (magnitude < 0x3C800000u ? small : normal) | (bits >> 24 & 0x80u);
  }
}

// Eight neighbours of a row, as bytes in two words.
template <DType kKv>
__device__ __forceinline__ uint2 narrow_to_bytes(const float (&values)[8], float inverse_scale) {
  unsigned words[2] = {};
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    words[i / 4] |= narrow_to_byte<kKv>(values[i] * inverse_scale) << i % 4 * 8;
  }
  return make_uint2(words[0], words[1]);
}

// Bytes 0, 1 of a and b by turns: a0 b0 a1 b1.
__device__ __forceinline__ unsigned interleave_low(unsigned a, unsigned b) {
  return (a & 0xFFu) | (b & 0xFFu) << 8 | (a & 0xFF00u) << 8 | (b & 0xFF00u) << 16;
}
// Bytes 2, 3 likewise.
__device__ __forceinline__ unsigned interleave_high(unsigned a, unsigned b) {
  return interleave_low(a >> 16, b >> 16);
}

}  // namespace batchmill
