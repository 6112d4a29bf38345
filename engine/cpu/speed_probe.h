// Workloads that show how fast this machine can be at best. The caller measures the time of run(),
// best of several after a first one that warms up. One thread calls, OpenMP threads compute.
#pragma once

#include <cstdint>
#include <memory>

#include "engine/tensor.h"

namespace batchmill {

// One large matrix product on packed weights.
class GemmProbe {
 public:
  GemmProbe(DType dtype, std::int32_t threads);
  ~GemmProbe();
  void run();
  double operations() const;  // floating-point operations of one run
  bool result_is_right() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// One matrix product of a given shape by oneDNN alone: no quantising, no scales, no bias, weights
// packed once. What a backend's products of that shape are measured against. kI8: unsigned bytes ×
// signed bytes, 32-bit sums.
class ProductProbe {
 public:
  // output [rows, out] = input [rows, in] × weightᵀ.
  ProductProbe(DType dtype, std::int32_t threads, std::int32_t rows, std::int32_t out_features,
               std::int32_t in_features);
  ~ProductProbe();
  void run();
  double operations() const;  // of one run
  bool result_is_right() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Reads memory that no cache holds.
class ReadProbe {
 public:
  explicit ReadProbe(std::int32_t threads);
  void run();
  double bytes() const { return static_cast<double>(buffer_->size_bytes()); }
  bool result_is_right() const;

 private:
  std::int32_t threads_;
  std::unique_ptr<DeviceBuffer> buffer_;
  std::uint64_t sum_ = 0;
};

}  // namespace batchmill
