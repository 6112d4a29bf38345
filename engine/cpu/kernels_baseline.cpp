// Kernels for what every x86-64 processor has (SSE2).
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "engine/cpu/kernel_tables.h"
#include "engine/cpu/kv_layout.h"

namespace batchmill {
namespace {

constexpr int kLanes = 4;
#include "engine/cpu/vector_kernels.inc"

}  // namespace

const Kernels& baseline_kernels() {
  static const Kernels kernels = make_kernels(InstructionSet::kBaseline);
  return kernels;
}

}  // namespace batchmill
