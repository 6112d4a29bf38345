// Kernels for AVX-512.
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
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,prefer-vector-width=512")

namespace batchmill {
namespace {

constexpr int kLanes = 16;
#define BATCHMILL_OWN_CONVERSIONS
#include "engine/cpu/vector_kernels.inc"

#include "engine/cpu/avx512_kernel.inc"

BATCHMILL_INLINE Ints dot_shorts(Ints sum, Ints a, Ints b) {
  return sum + reinterpret_cast<Ints>(
                   _mm512_madd_epi16(reinterpret_cast<__m512i>(a), reinterpret_cast<__m512i>(b)));
}

}  // namespace

const Kernels& avx512_kernels() {
  static const Kernels kernels = make_kernels(InstructionSet::kAvx512);
  return kernels;
}

}  // namespace batchmill

#pragma GCC pop_options
