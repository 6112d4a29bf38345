// One quantized block of a GGUF tensor as floats: what each type's bytes mean. Pure functions, safe
// from any thread; `block` needs no alignment. All numbers in a file are little-endian; "half" is
// an IEEE 16-bit float, q a small unsigned integer.
#pragma once

#include <cstddef>

namespace batchmill {

// Types of 32 elements. Four-bit q: byte i holds element i low and element i + 16 high.

// half d, 16 bytes of q. value = d × (q − 8).
void dequantize_q4_0(const std::byte* block, float* output);
// half d, half m, 16 bytes of q. value = d × q + m.
void dequantize_q4_1(const std::byte* block, float* output);
// half d, 32 bits (bit i: the fifth bit of element i), 16 bytes of low halves. value = d × (q −
// 16).
void dequantize_q5_0(const std::byte* block, float* output);
// half d, half m, then as Q5_0. value = d × q + m.
void dequantize_q5_1(const std::byte* block, float* output);
// half d, 32 signed bytes. value = d × byte.
void dequantize_q8_0(const std::byte* block, float* output);
// half d, 16 bytes of q. value = d × level[q], 16 levels that are denser around zero.
void dequantize_iq4_nl(const std::byte* block, float* output);
// Exponent byte e, 16 bytes of q: sign, two bits of exponent, one of mantissa (E2M1; magnitudes 0,
// 0.5, 1, 1.5, 2, 3, 4, 6). value = 2^(e − 127) × q, e 255 being an exponent like the others.
void dequantize_mxfp4(const std::byte* block, float* output);

// Types of 256 elements: 8 groups of 32 or 16 groups of 16, with scales that are integers
// themselves.

// 16 bytes (scale s low, minimum m high), 64 bytes of 2-bit q, half d, half e.
// value = (d × s) × q − e × m. Byte 32 h + i holds elements 128 h + i + 0, 32, 64, 96, lowest bits
// first.
void dequantize_q2_k(const std::byte* block, float* output);
// 32 bytes (bit g of byte i: the third bit of element 32 g + i), 64 bytes of 2-bit q as in Q2_K, 16
// scales s of six bits in 12 bytes, half d. value = d × (s − 32) × (q − 4).
void dequantize_q3_k(const std::byte* block, float* output);
// half d, half e, eight pairs (s, m) of six bits in 12 bytes, 128 bytes: byte 32 h + i holds
// element 64 h + i low and 64 h + 32 + i high. value = (d × s) × q − e × m.
void dequantize_q4_k(const std::byte* block, float* output);
// As Q4_K, with 32 bytes (bit g of byte i: the fifth bit of element 32 g + i) before the 128.
void dequantize_q5_k(const std::byte* block, float* output);
// 128 bytes of low halves: byte 64 h + i holds elements 128 h + i low and 128 h + 64 + i high, i <
// 64; 64 bytes of upper two bits as in Q2_K; 16 signed scales s; half d. value = d × s × (q − 32).
void dequantize_q6_k(const std::byte* block, float* output);

}  // namespace batchmill
