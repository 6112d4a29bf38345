// Instructions against their definitions: in asm on a GPU, as their twins on emulated threads.
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>

#include "tests/cuda/check.h"
#include "tests/cuda/instruction_kernels.h"

namespace batchmill::testing {

KERNEL_CHECK(instructions_load_matrices) {
  std::vector<std::uint16_t> matrices(256);
  std::iota(matrices.begin(), matrices.end(), std::uint16_t{1000});
  const DeviceArray<std::uint16_t> input(&check, matrices);
  for (const bool transposed : {false, true}) {
    const DeviceArray<std::uint32_t> fragments(&check, 128);
    launch_matrix_load(input.data(), transposed, fragments.data(), check.stream());
    const std::vector<std::uint32_t> got = fragments.read();
    for (int lane = 0; lane < 32; ++lane) {
      for (int m = 0; m < 4; ++m) {
        const int major = lane / 4;  // row; column if transposed
        const int minor = lane % 4 * 2;
        const auto at = [&](int i) -> std::uint32_t {
          const int row = transposed ? minor + i : major;
          const int col = transposed ? major : minor + i;
          return static_cast<std::uint32_t>(1000 + m * 64 + row * 8 + col);
        };
        check.expect(got[static_cast<std::size_t>(lane * 4 + m)] == (at(0) | at(1) << 16),
                     std::string(transposed ? "transposed" : "plain") + ", lane " +
                         std::to_string(lane) + ", matrix " + std::to_string(m));
      }
    }
  }
}

KERNEL_CHECK(instructions_multiply_matrices) {
  const std::vector<float> a = rounded(check.normal(256));
  const std::vector<float> b = rounded(check.normal(128));
  const std::vector<float> c = check.normal(128);
  const DeviceArray<std::uint16_t> left(&check, bf16_of(a));
  const DeviceArray<std::uint16_t> right(&check, bf16_of(b));
  const DeviceArray<float> sums(&check, c);
  launch_product(left.data(), right.data(), sums.data(), check.stream());
  std::vector<double> expected(c.begin(), c.end());
  for (std::size_t i = 0; i < 128; ++i) {
    for (std::size_t k = 0; k < 16; ++k) {
      expected[i] += double{a[i / 8 * 16 + k]} * b[k * 8 + i % 8];
    }
  }
  check.expect_near("sums", sums.read(), expected, 1e-5);
}

KERNEL_CHECK(instructions_copy_asynchronously) {
  std::vector<std::uint16_t> numbers(256);
  std::iota(numbers.begin(), numbers.end(), std::uint16_t{1});
  const DeviceArray<std::uint16_t> input(&check, numbers);
  const DeviceArray<std::uint16_t> output(&check, 512);
  launch_copies(input.data(), output.data(), check.stream());
  const std::vector<std::uint16_t> got = output.read();
  for (std::size_t i = 0; i < 512; ++i) {
    const bool is_zero = i >= 256 && i / 8 % 2 == 1;
    check.expect(got[i] == (is_zero ? 0 : numbers[i % 256]), "element " + std::to_string(i));
  }
}

KERNEL_CHECK(instructions_round_as_they_should) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  std::vector<float> pairs = {1.0f,        1.00390625f,  // a tie, to even
                              1.01171875f, -1.00390625f, 3.3895e38f, -3.4e38f,
                              kInfinity,   -kInfinity,   0.0f,       -0.0f,
                              -126.5f,     1e-39f,  // results and operands that are not normal
                              -200.0f,     2.0f};
  for (const float value : check.normal(400, 20.0f)) pairs.push_back(value);
  const auto count = static_cast<int>(pairs.size() / 2);
  const DeviceArray<float> input(&check, pairs);
  const DeviceArray<std::uint32_t> results(&check, pairs.size() * 2);
  launch_arithmetic(input.data(), results.data(), count, check.stream());
  const std::vector<std::uint32_t> got = results.read();
  for (std::size_t i = 0; i < pairs.size() / 2; ++i) {
    const float a = pairs[2 * i];
    const float b = pairs[2 * i + 1];
    const std::string place = std::to_string(a) + ", " + std::to_string(b);
    const std::uint32_t packed = bf16_of(a) | std::uint32_t{bf16_of(b)} << 16;
    check.expect(got[4 * i] == packed, "bf16 of " + place);
    const volatile float product = a * b;  // rounded before it is added
    const float sum = product + b;
    check.expect(got[4 * i + 1] == std::bit_cast<std::uint32_t>(sum) ||
                     (std::isnan(sum) && std::isnan(std::bit_cast<float>(got[4 * i + 1]))),
                 "a × b + b of " + place);
    const double power = std::exp2(double{a});
    const double got_power = std::bit_cast<float>(got[4 * i + 2]);
    check.expect(std::abs(got_power - power) <= 1e-6 * power + 1.2e-38 || got_power == power,
                 "2^a of " + place);
    if (std::abs(b) > 1e30f || std::abs(b) < 1e-30f || std::isinf(a)) continue;
    const double quotient = double{a} / b;
    const double got_quotient = std::bit_cast<float>(got[4 * i + 3]);
    check.expect(std::abs(got_quotient - quotient) <= 1e-6 * std::abs(quotient) + 1e-37,
                 "a ÷ b of " + place);
  }
}

}  // namespace batchmill::testing
