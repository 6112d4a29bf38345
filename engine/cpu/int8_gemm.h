// Matrix products in int8: weights with one scale per output, rows with one scale each, both
// rotated first (int8_layout.h), sums exact. A row's result therefore does not depend on its
// neighbours. Owned by a CpuBackend; one thread calls it, its team computes.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/backend.h"
#include "engine/cpu/cpu_memory.h"
#include "engine/cpu/kernels.h"
#include "engine/cpu/thread_team.h"
#include "engine/logits_scan.h"
#include "engine/tensor.h"

namespace batchmill {

// Valid as long as the Int8Gemm that packed it.
class Int8Matrix : public Matrix {
 public:
  Int8Matrix(std::int32_t out_features, std::int32_t in_features, const std::uint8_t* panels,
             const float* scales, const float* bias)
      : Matrix(out_features, in_features), panels_(panels), scales_(scales), bias_(bias) {}
  const std::uint8_t* panels() const { return panels_; }
  const float* scales() const { return scales_; }  // [outputs, rounded up to whole panels]
  const float* bias() const { return bias_; }  // likewise; null: there is none

 private:
  const std::uint8_t* panels_;
  const float* scales_;
  const float* bias_;
};

class Int8Gemm {
 public:
  Int8Gemm(const Kernels& kernels, ThreadTeam* team) : kernels_(kernels), team_(*team) {}

  // Whether a matrix of this shape can be multiplied: inputs are taken in groups of 16.
  static bool can_pack(std::int32_t in_features) { return in_features % 16 == 0; }

  // Rotates, quantises and packs a matrix whose rows [out][in] come from `rows`, called from
  // several threads at once. `bias` is empty or [out].
  std::unique_ptr<Int8Matrix> pack(std::int32_t out_features, std::int32_t in_features,
                                   const RowSource& rows, std::span<const float> bias);

  // output [n, out] act or f32 (+)= input [n, in] act × matrixᵀ + bias. Only f32 sums can be added
  // to. All threads share the product. `scan`, for f32 output, gets the rows' maxima, if there is
  // one.
  void run(const Tensor& input, const Int8Matrix& matrix, const Tensor& output, bool accumulate,
           LogitsScan* scan = nullptr);

  // The same for rows `first` to `first + count`, at most kBlockRows, by thread `thread` alone;
  // several threads may call it at once. reserve() comes first, for all threads.
  void reserve_block(const Int8Matrix& matrix);
  void run_block(const Tensor& input, const Int8Matrix& matrix, const Tensor& output,
                 bool accumulate, std::int32_t first, std::int32_t count, std::int32_t thread);

  std::string implementation() const;

 private:
  // Rows as bytes, while one thread multiplies them.
  struct Block {
    std::unique_ptr<DeviceBuffer> bytes;  // [kBlockRows, in]
    std::unique_ptr<DeviceBuffer> work;  // f32 [in]
    std::vector<QuantizedRow> scales;
  };

  const Kernels& kernels_;
  ThreadTeam& team_;
  CpuArena arena_;  // of packed matrices
  // Quantised rows of the current product, one float row per thread, scales.
  std::unique_ptr<DeviceBuffer> rows_;
  std::unique_ptr<DeviceBuffer> work_;
  std::vector<QuantizedRow> scales_;
  std::vector<Block> blocks_;  // one per thread
};

}  // namespace batchmill
