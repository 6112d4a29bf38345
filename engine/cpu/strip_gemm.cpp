#include "engine/cpu/strip_gemm.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "engine/cpu/cpu_memory.h"
#include "engine/dequantize.h"

namespace batchmill {
namespace {

constexpr std::int32_t kRowsPerTask = 48;

std::size_t index_of(DType dtype) { return static_cast<std::size_t>(dtype); }

std::int32_t num_strips(std::int32_t out_features) {
  return (out_features + kStripColumns - 1) / kStripColumns;
}

}  // namespace

std::unique_ptr<DeviceBuffer> StripGemm::pack(std::int32_t out_features, std::int32_t in_features,
                                              const RowSource& rows) const {
  const std::int32_t strips = num_strips(out_features);
  const std::int64_t pack = dtype_ == DType::kBF16 ? 2 : 1;
  auto packed = allocate_cpu_buffer(std::size_t{kStripColumns} * static_cast<std::size_t>(strips) *
                                    static_cast<std::size_t>(in_features) *
                                    static_cast<std::size_t>(dtype_bytes(dtype_)));
  std::memset(packed->data(), 0, packed->size_bytes());
#pragma omp parallel
  {
    std::vector<float> row(static_cast<std::size_t>(in_features));
#pragma omp for schedule(static)
    for (std::int32_t output = 0; output < out_features; ++output) {
      rows(output, row.data());
      // [group of 16 outputs][in ÷ pack][16][pack]
      const std::int64_t first = std::int64_t{output / kStripLanes} * kStripLanes * in_features +
                                 output % kStripLanes * pack;
      for (std::int64_t i = 0; i < in_features; ++i) {
        const std::int64_t at = first + i / pack * kStripLanes * pack + i % pack;
        if (dtype_ == DType::kF32) {
          static_cast<float*>(packed->data())[at] = row[static_cast<std::size_t>(i)];
        } else {
          static_cast<std::uint16_t*>(packed->data())[at] =
              bfloat16_from_float(row[static_cast<std::size_t>(i)]);
        }
      }
    }
  }
  return packed;
}

void StripGemm::run(const Tensor& input, const void* strips, const float* bias,
                    std::int32_t out_features, const Tensor& output, bool accumulate) const {
  const auto kernel = kernels_.multiply_strip[index_of(dtype_)][index_of(output.dtype)];
  const std::size_t strip_bytes = static_cast<std::size_t>(kStripColumns) *
                                  static_cast<std::size_t>(input.cols) *
                                  static_cast<std::size_t>(dtype_bytes(dtype_));
  const std::int32_t num_row_tasks = (input.rows + kRowsPerTask - 1) / kRowsPerTask;
#pragma omp parallel for collapse(2) schedule(static)
  for (std::int32_t strip = 0; strip < num_strips(out_features); ++strip) {
    for (std::int32_t rows = 0; rows < num_row_tasks; ++rows) {
      const std::int32_t first = rows * kRowsPerTask;
      StripTask task;
      task.input = static_cast<const std::byte*>(input.data) +
                   static_cast<std::size_t>(first) * input.row_bytes();
      task.strip =
          static_cast<const std::byte*>(strips) + static_cast<std::size_t>(strip) * strip_bytes;
      task.output = static_cast<std::byte*>(output.data) +
                    static_cast<std::size_t>(first) * output.row_bytes() +
                    static_cast<std::size_t>(strip * kStripColumns * dtype_bytes(output.dtype));
      task.bias = bias == nullptr ? nullptr : bias + strip * kStripColumns;
      task.output_stride = output.cols;
      task.num_rows = std::min(kRowsPerTask, input.rows - first);
      task.num_columns = std::min(kStripColumns, out_features - strip * kStripColumns);
      task.in_features = input.cols;
      task.accumulate = accumulate;
      kernel(task);
    }
  }
}

}  // namespace batchmill
