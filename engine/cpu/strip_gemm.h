// Matrix products of own kernels with sums in one fixed order: the same for any number of rows and
// threads. Slower than oneDNN's, and used only where those do not keep an order. Owned by a Gemm;
// one thread calls it, OpenMP threads compute.
#pragma once

#include <cstdint>
#include <memory>

#include "engine/backend.h"
#include "engine/cpu/kernels.h"
#include "engine/tensor.h"

namespace batchmill {

class StripGemm {
 public:
  StripGemm(DType dtype, const Kernels& kernels) : dtype_(dtype), kernels_(kernels) {}

  // The strips (kernels.h) of a matrix whose rows [out][in] come from `rows`, called from several
  // threads at once. Outputs that fill up the last strip are zero.
  std::unique_ptr<DeviceBuffer> pack(std::int32_t out_features, std::int32_t in_features,
                                     const RowSource& rows) const;

  // output [n, out] (+)= input [n, in] × matrixᵀ + bias [out], if it is not null.
  void run(const Tensor& input, const void* strips, const float* bias, std::int32_t out_features,
           const Tensor& output, bool accumulate) const;

 private:
  DType dtype_;
  const Kernels& kernels_;
};

}  // namespace batchmill
