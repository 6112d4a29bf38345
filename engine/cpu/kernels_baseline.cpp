// Kernels for what every x86-64 processor has (SSE2).
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

namespace batchmill {
namespace {

constexpr int kLanes = 4;
#include "engine/cpu/vector_kernels.inc"

BATCHMILL_INLINE Ints dot_shorts(Ints sum, Ints a, Ints b) {
  return sum + reinterpret_cast<Ints>(
                   _mm_madd_epi16(reinterpret_cast<__m128i>(a), reinterpret_cast<__m128i>(b)));
}

}  // namespace

const Kernels& baseline_kernels() {
  static const Kernels kernels = make_kernels(InstructionSet::kBaseline);
  return kernels;
}

}  // namespace batchmill
