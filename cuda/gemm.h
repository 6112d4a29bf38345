// Matrix products with weights. Two implementations under one name: cuBLASLt (cuda/runtime/), and
// plain loops for emulated devices (cuda/emulation/). One thread.
#pragma once

#include <memory>
#include <string>

#include "cuda/device_buffer.h"
#include "cuda/stream.h"
#include "engine/backend.h"

namespace batchmill {

// bf16 [out, in], rounded to the nearest; the bias in both types that products are written in.
class CudaMatrix : public Matrix {
 public:
  CudaMatrix(std::int32_t out_features, std::int32_t in_features)
      : Matrix(out_features, in_features),
        weights(std::size_t{2} * static_cast<std::size_t>(out_features) *
                static_cast<std::size_t>(in_features)) {}

  CudaBuffer weights;
  std::unique_ptr<CudaBuffer> bias_f32;  // null: no bias
  std::unique_ptr<CudaBuffer> bias_bf16;
};

class CudaGemm {
 public:
  explicit CudaGemm(CudaStream* stream);
  ~CudaGemm();
  CudaGemm(const CudaGemm&) = delete;
  CudaGemm& operator=(const CudaGemm&) = delete;

  // output [rows, out] bf16 or f32 = input [rows, in] bf16 × weightᵀ + bias; `accumulate`: what
  // output f32 held is added. Throws CudaError.
  void run(const Tensor& input, const CudaMatrix& weight, const Tensor& output, bool accumulate);

  std::string describe() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace batchmill
