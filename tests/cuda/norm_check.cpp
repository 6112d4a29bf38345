#include "cuda/norm_kernels.h"

#include <cmath>

#include "tests/cuda/check.h"

namespace batchmill::testing {
namespace {

struct Case {
  int rows;
  int cols;
  bool layer;
};

std::vector<double> reference_of(const Case& shape, const std::vector<float>& input,
                                 const std::vector<float>& weight, const std::vector<float>& bias,
                                 double epsilon) {
  std::vector<double> result(input.size());
  for (int row = 0; row < shape.rows; ++row) {
    const float* values = input.data() + static_cast<std::size_t>(row) * shape.cols;
    double mean = 0;
    for (int i = 0; shape.layer && i < shape.cols; ++i) mean += double{values[i]} / shape.cols;
    double squares = 0;
    for (int i = 0; i < shape.cols; ++i) {
      squares += (values[i] - mean) * (values[i] - mean) / shape.cols;
    }
    for (int i = 0; i < shape.cols; ++i) {
      const auto at = static_cast<std::size_t>(i);
      result[static_cast<std::size_t>(row) * shape.cols + at] =
          (values[i] - mean) / std::sqrt(squares + epsilon) * weight[at] +
          (shape.layer ? double{bias[at]} : 0.0);
    }
  }
  return result;
}

void check_shape(Check& check, const Case& shape) {
  constexpr float kEpsilon = 1e-5f;
  const auto cols = static_cast<std::size_t>(shape.cols);
  const std::size_t count = static_cast<std::size_t>(shape.rows) * cols;
  std::vector<float> input = check.normal(count, 3.0f);
  for (float& value : input) value += 1.5f;
  const std::vector<float> weight = check.normal(cols);
  const std::vector<float> bias = check.normal(cols);
  const std::vector<double> reference = reference_of(shape, input, weight, bias, kEpsilon);

  const DeviceArray<float> device_input(&check, input);
  const DeviceArray<float> device_weight(&check, weight);
  const DeviceArray<float> device_bias(&check, bias);
  const DeviceArray<std::uint16_t> narrow(&check, count);
  NormArguments arguments{
      device_input.data(), device_weight.data(), shape.layer ? device_bias.data() : nullptr,
      narrow.data(),       shape.cols,           kEpsilon};
  launch_norm(arguments, NormOutput::kBf16, shape.rows, check.stream());
  check.expect_near("bf16", float_of(narrow.read()), reference, 0.005);

  const std::vector<float> before = check.normal(count);
  const DeviceArray<float> sum(&check, before);
  arguments.output = sum.data();
  launch_norm(arguments, NormOutput::kAdd, shape.rows, check.stream());
  std::vector<double> added = reference;
  for (std::size_t i = 0; i < count; ++i) added[i] += before[i];
  check.expect_near("added", sum.read(), added, 2e-6);

  arguments.output = device_input.data();
  launch_norm(arguments, NormOutput::kF32, shape.rows, check.stream());
  check.expect_near("in place", device_input.read(), reference, 2e-6);
}

}  // namespace

KERNEL_CHECK(rms_norm_of_a_short_row) { check_shape(check, {3, 64, false}); }
KERNEL_CHECK(rms_norm_of_a_row_with_a_rest) { check_shape(check, {2, 2056, false}); }
KERNEL_CHECK(rms_norm_of_a_wide_row) { check_shape(check, {2, 8192, false}); }
KERNEL_CHECK(layer_norm_of_a_short_row) { check_shape(check, {3, 96, true}); }
KERNEL_CHECK(layer_norm_of_a_wide_row) { check_shape(check, {1, 4096, true}); }

KERNEL_CHECK(convert) {
  const std::vector<float> input = check.normal(8 * 300);
  const DeviceArray<float> device(&check, input);
  const DeviceArray<std::uint16_t> output(&check, input.size());
  launch_convert(device.data(), output.data(), 8 * 300, check.stream());
  check.expect(output.read() == bf16_of(input), "rounds to the nearest");
}

}  // namespace batchmill::testing
