// Matrix products on oneDNN with weights packed once. Owned by a CpuBackend; one thread calls it,
// OpenMP threads compute.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

#include <oneapi/dnnl/dnnl.hpp>

#include "engine/backend.h"
#include "engine/cpu/cpu_memory.h"
#include "engine/cpu/strip_gemm.h"
#include "engine/tensor.h"

namespace batchmill {

// Valid as long as the Gemm that packed it.
class PackedMatrix : public Matrix {
 public:
  // `bias`: f32 [1, out] or none.
  PackedMatrix(std::int32_t out_features, std::int32_t in_features, dnnl::memory memory,
               dnnl::memory bias)
      : Matrix(out_features, in_features), memory_(std::move(memory)), bias_(std::move(bias)) {}
  PackedMatrix(std::int32_t out_features, std::int32_t in_features,
               std::unique_ptr<DeviceBuffer> strips, dnnl::memory bias)
      : Matrix(out_features, in_features), strips_(std::move(strips)), bias_(std::move(bias)) {}
  const dnnl::memory& memory() const { return memory_; }
  const DeviceBuffer* strips() const { return strips_.get(); }  // null: oneDNN multiplies it
  bool has_bias() const { return static_cast<bool>(bias_); }
  const dnnl::memory& bias() const { return bias_; }
  const float* bias_values() const {
    return has_bias() ? static_cast<const float*>(bias_.get_data_handle()) : nullptr;
  }

 private:
  dnnl::memory memory_;
  std::unique_ptr<DeviceBuffer> strips_;
  dnnl::memory bias_;
};

class Gemm {
 public:
  // `ordered`: kernels for products that oneDNN would sum in an order that depends on the number of
  // rows or threads. Null: any order is good.
  explicit Gemm(DType dtype, const Kernels* ordered = nullptr);
  ~Gemm();

  DType dtype() const { return dtype_; }

  // Packs a matrix whose rows [out][in] come from `rows`, called from several threads at once.
  // `bias` is empty or [out].
  std::unique_ptr<PackedMatrix> pack(std::int32_t out_features, std::int32_t in_features,
                                     const RowSource& rows, std::span<const float> bias = {});

  // Rows that run() computes when it is asked for `rows`. Every other count would need a primitive
  // of its own, which takes a fraction of a millisecond to make.
  static std::int32_t padded_rows(std::int32_t rows);

  // output [n, out] (+)= input [n, in] × matrixᵀ; both have room for padded_rows(n).
  void run(const Tensor& input, const PackedMatrix& matrix, const Tensor& output, bool accumulate);

  // oneDNN's names of the implementations made so far, e.g. "960x576 rows 64:
  // brg:avx512_core_bf16".
  std::vector<std::string> implementations() const;

 private:
  struct Primitive;
  // out, in, padded rows, output dtype, bias, accumulate
  using Key = std::tuple<std::int32_t, std::int32_t, std::int32_t, DType, bool, bool>;

  Primitive& primitive(const Key& key);
  // Whether oneDNN's kernel for this shape gives every row the same sums whatever the number of
  // rows and threads.
  bool keeps_order(std::int32_t out_features, std::int32_t in_features);
  dnnl::memory keep_bias(std::span<const float> bias);
  // Rows [first, first + count) as dtype() to `output` [count, in_features].
  void read_rows(const RowSource& rows, std::int64_t first, std::int32_t count,
                 std::int32_t in_features, void* output) const;
  dnnl::memory::desc packed_description(std::int32_t out_features, std::int32_t in_features);

  DType dtype_;
  std::optional<StripGemm> strip_gemm_;
  CpuArena arena_;  // of packed matrices
  dnnl::engine engine_;
  dnnl::stream stream_;
  std::map<std::pair<std::int32_t, std::int32_t>, dnnl::memory::desc> packed_;
  std::map<Key, std::unique_ptr<Primitive>> primitives_;
};

}  // namespace batchmill
