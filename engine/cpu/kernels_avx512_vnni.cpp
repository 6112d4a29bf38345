// Kernels for AVX-512 with products of bytes.
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
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,prefer-vector-width=512")

namespace batchmill {
namespace {

constexpr int kLanes = 16;
#define BATCHMILL_OWN_CONVERSIONS
#define BATCHMILL_OWN_INT8
#include "engine/cpu/vector_kernels.inc"

#include "engine/cpu/avx512_kernel.inc"

#include "engine/cpu/vnni_kernel.inc"

}  // namespace

const Kernels& avx512_vnni_kernels() {
  static const Kernels kernels = make_kernels(InstructionSet::kAvx512Vnni);
  return kernels;
}

}  // namespace batchmill

#pragma GCC pop_options
