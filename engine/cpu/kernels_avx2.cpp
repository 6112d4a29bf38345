// Kernels for AVX2 and FMA.
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
#pragma GCC target("avx2,fma,f16c")

namespace batchmill {
namespace {

constexpr int kLanes = 8;
#include "engine/cpu/vector_kernels.inc"

BATCHMILL_INLINE Ints dot_shorts(Ints sum, Ints a, Ints b) {
  return sum + reinterpret_cast<Ints>(
                   _mm256_madd_epi16(reinterpret_cast<__m256i>(a), reinterpret_cast<__m256i>(b)));
}

}  // namespace

const Kernels& avx2_kernels() {
  static const Kernels kernels = make_kernels(InstructionSet::kAvx2);
  return kernels;
}

}  // namespace batchmill

#pragma GCC pop_options
