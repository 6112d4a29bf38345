#include "engine/cpu/speed_probe.h"

#include <omp.h>

#include <algorithm>

#include "engine/cpu/cpu_memory.h"
#include "engine/cpu/gemm.h"
#include "engine/dequantize.h"

namespace batchmill {
namespace {

constexpr std::int32_t kSize = 2048;
constexpr std::size_t kReadBytes = std::size_t{512} << 20;

// Small integers: their products and sums are exact in all types.
float weight(std::int64_t row, std::int64_t col) { return static_cast<float>((row + col) % 3 - 1); }

}  // namespace

struct GemmProbe::Impl {
  Impl(DType dtype, std::int32_t num_threads) : threads(num_threads), gemm(dtype) {
    omp_set_num_threads(threads);
    matrix = gemm.pack(kSize, kSize, [](std::int64_t row, float* values) {
      for (std::int32_t i = 0; i < kSize; ++i) values[i] = weight(row, i);
    });
    const std::size_t elements = std::size_t{kSize} * kSize;
    input_memory = allocate_cpu_buffer(elements * static_cast<std::size_t>(dtype_bytes(dtype)));
    output_memory = allocate_cpu_buffer(elements * sizeof(float));
    input = {input_memory->data(), dtype, kSize, kSize};
    output = {output_memory->data(), DType::kF32, kSize, kSize};
    if (dtype == DType::kF32) {
      std::fill_n(input.row<float>(0), elements, 1.0f);
    } else {
      std::fill_n(input.row<std::uint16_t>(0), elements, bfloat16_from_float(1.0f));
    }
  }

  std::int32_t threads;
  Gemm gemm;
  std::unique_ptr<PackedMatrix> matrix;
  std::unique_ptr<DeviceBuffer> input_memory;
  std::unique_ptr<DeviceBuffer> output_memory;
  Tensor input;
  Tensor output;
};

GemmProbe::GemmProbe(DType dtype, std::int32_t threads)
    : impl_(std::make_unique<Impl>(dtype, threads)) {}

GemmProbe::~GemmProbe() = default;

void GemmProbe::run() {
  omp_set_num_threads(impl_->threads);
  impl_->gemm.run(impl_->input, *impl_->matrix, impl_->output, false);
}

double GemmProbe::operations() const { return 2.0 * kSize * kSize * kSize; }

bool GemmProbe::result_is_right() const {
  for (std::int32_t col = 0; col < kSize; ++col) {
    float sum = 0;
    for (std::int32_t i = 0; i < kSize; ++i) sum += weight(col, i);
    for (std::int32_t row = 0; row < kSize; row += 89) {
      if (impl_->output.row<float>(row)[col] != sum) return false;
    }
  }
  return true;
}

ReadProbe::ReadProbe(std::int32_t threads)
    : threads_(threads), buffer_(allocate_cpu_buffer(kReadBytes)) {
  auto* words = static_cast<std::uint64_t*>(buffer_->data());
  constexpr auto kWords = static_cast<std::int64_t>(kReadBytes / sizeof(std::uint64_t));
#pragma omp parallel for schedule(static) num_threads(threads_)
  for (std::int64_t i = 0; i < kWords; ++i) words[i] = 1;
}

void ReadProbe::run() {
  const auto* words = static_cast<const std::uint64_t*>(buffer_->data());
  constexpr auto kWords = static_cast<std::int64_t>(kReadBytes / sizeof(std::uint64_t));
  std::uint64_t sum = 0;
#pragma omp parallel for simd schedule(static) num_threads(threads_) reduction(+ : sum)
  for (std::int64_t i = 0; i < kWords; ++i) sum += words[i];
  sum_ = sum;
}

bool ReadProbe::result_is_right() const { return sum_ == kReadBytes / sizeof(std::uint64_t); }

}  // namespace batchmill
