#include "engine/cpu/speed_probe.h"

#include <omp.h>

#include <algorithm>
#include <cmath>

#include "engine/cpu/cpu_backend.h"
#include "engine/cpu/cpu_memory.h"
#include "engine/dequantize.h"

namespace batchmill {
namespace {

constexpr std::int32_t kSize = 2048;
constexpr std::size_t kReadBytes = std::size_t{512} << 20;

// Products and sums of these with ones are exact in all types; int8 rounds its scales.
float weight(std::int64_t row) { return static_cast<float>(row % 3 - 1); }
constexpr float kTolerance = 1e-5f * kSize;

}  // namespace

struct GemmProbe::Impl {
  Impl(DType dtype, std::int32_t num_threads) : threads(num_threads), backend(dtype, num_threads) {
    matrix = backend.make_matrix(kSize, kSize, [](std::int64_t row, float* values) {
      for (std::int32_t i = 0; i < kSize; ++i) values[i] = weight(row);
    });
    const std::size_t elements = std::size_t{kSize} * kSize;
    const DType input_dtype = backend.activation_dtype();
    input_memory =
        allocate_cpu_buffer(elements * static_cast<std::size_t>(dtype_bytes(input_dtype)));
    output_memory = allocate_cpu_buffer(elements * sizeof(float));
    input = {input_memory->data(), input_dtype, kSize, kSize};
    output = {output_memory->data(), DType::kF32, kSize, kSize};
    if (input_dtype == DType::kF32) {
      std::fill_n(input.row<float>(0), elements, 1.0f);
    } else {
      std::fill_n(input.row<std::uint16_t>(0), elements, bfloat16_from_float(1.0f));
    }
  }

  std::int32_t threads;
  CpuBackend backend;
  std::unique_ptr<Matrix> matrix;
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
  impl_->backend.matmul(impl_->input, *impl_->matrix, impl_->output);
  impl_->backend.finish();
}

double GemmProbe::operations() const { return 2.0 * kSize * kSize * kSize; }

bool GemmProbe::result_is_right() const {
  for (std::int32_t col = 0; col < kSize; ++col) {
    const float sum = kSize * weight(col);
    for (std::int32_t row = 0; row < kSize; row += 89) {
      if (!(std::abs(impl_->output.row<float>(row)[col] - sum) <= kTolerance)) return false;
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
