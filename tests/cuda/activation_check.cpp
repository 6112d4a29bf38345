#include "cuda/activation_kernels.h"

#include <cmath>
#include <numbers>

#include "tests/cuda/check.h"

namespace batchmill::testing {
namespace {

double activate(GateKind kind, double x) {
  switch (kind) {
    case GateKind::kSilu:
      return x / (1.0 + std::exp(-x));
    case GateKind::kGeluTanh:
      return 0.5 * x *
             (1.0 + std::tanh(std::sqrt(2.0 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
    case GateKind::kGeluErf:
      return 0.5 * x * (1.0 + std::erf(x / std::numbers::sqrt2));
  }
  return 0;
}

void check_kind(Check& check, GateKind kind) {
  constexpr std::size_t kRows = 3;
  constexpr std::size_t kInner = 264;
  std::vector<float> input = check.normal(kRows * 2 * kInner, 4.0f);
  input[0] = 60.0f;
  input[1] = -90.0f;
  input = rounded(input);
  const DeviceArray<std::uint16_t> device(&check, bf16_of(input));
  for (const bool gated : {true, false}) {
    const std::size_t rows = gated ? kRows : 2 * kRows;
    const DeviceArray<std::uint16_t> output(&check, rows * kInner);
    launch_activation(kind, gated, device.data(), output.data(), static_cast<int>(rows),
                      static_cast<int>(kInner), check.stream());
    std::vector<double> expected;
    for (std::size_t row = 0; row < rows; ++row) {
      const float* values = input.data() + row * kInner * (gated ? 2 : 1);
      for (std::size_t i = 0; i < kInner; ++i) {
        expected.push_back(activate(kind, values[i]) * (gated ? double{values[kInner + i]} : 1.0));
      }
    }
    check.expect_near(gated ? "gated" : "plain", float_of(output.read()), expected, 0.005);
  }
}

}  // namespace

KERNEL_CHECK(silu) { check_kind(check, GateKind::kSilu); }
KERNEL_CHECK(gelu_tanh) { check_kind(check, GateKind::kGeluTanh); }
KERNEL_CHECK(gelu_erf) { check_kind(check, GateKind::kGeluErf); }

}  // namespace batchmill::testing
