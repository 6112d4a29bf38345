// Kernels for AVX-512 with products of bytes and of bfloat16.
#include <immintrin.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "engine/cpu/int8_layout.h"
#include "engine/cpu/kernel_tables.h"
#include "engine/cpu/kv_layout.h"

#pragma GCC push_options
#pragma GCC target( \
    "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx512vnni,avx2,fma,prefer-vector-width=512")

namespace batchmill {
namespace {

constexpr int kLanes = 16;
#define BATCHMILL_OWN_CONVERSIONS
#define BATCHMILL_OWN_BF16
#define BATCHMILL_OWN_INT8
#include "engine/cpu/vector_kernels.inc"

#include "engine/cpu/avx512_kernel.inc"

BATCHMILL_INLINE void store(std::uint16_t* target, Floats value) {
  const __m256bh rounded = _mm512_cvtneps_pbh(reinterpret_cast<__m512>(value));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(target), reinterpret_cast<__m256i>(rounded));
}

BATCHMILL_INLINE Floats dot_pairs(Floats sum, std::uint32_t a, Words b) {
  return _mm512_dpbf16_ps(
      reinterpret_cast<__m512>(sum),
      reinterpret_cast<__m512bh>(_mm512_set1_epi32(static_cast<std::int32_t>(a))),
      reinterpret_cast<__m512bh>(b));
}

#include "engine/cpu/vnni_kernel.inc"

}  // namespace

const Kernels& avx512_bf16_kernels() {
  static const Kernels kernels = make_kernels(InstructionSet::kAvx512Bf16);
  return kernels;
}

}  // namespace batchmill

#pragma GCC pop_options
