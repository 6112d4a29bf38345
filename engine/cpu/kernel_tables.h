// One kernel table per instruction set; kernels_for() chooses.
#pragma once

#include "engine/cpu/kernels.h"

namespace batchmill {

const Kernels& baseline_kernels();
const Kernels& avx2_kernels();
const Kernels& avx512_kernels();
const Kernels& avx512_vnni_kernels();
const Kernels& avx512_bf16_kernels();

}  // namespace batchmill
