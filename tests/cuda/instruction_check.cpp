// Instructions against their definitions: in asm on a GPU, as their twins on emulated threads.
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>

#include "tests/cuda/check.h"
#include "tests/cuda/instruction_kernels.h"
#include "tests/cuda/paged_cache.h"

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

KERNEL_CHECK(instructions_multiply_pairs) {
  // Numbers that are not normal and results that are not; a tie; one that a rounding to float32 in
  // between would make a tie.
  std::vector<std::uint16_t> numbers = {
      0x0010, 0x7B80, 0x0000, 0x0070, 0x7B80, 0x8000, 0x0080, 0x3F00, 0x0000, 0x3F81,
      0x3F80, 0x3B80, 0x3F80, 0x3F80, 0x3B80, 0x3F81, 0x3F81, 0x2F80, 0x42FF, 0x3F80,
      0xC300, 0x4300, 0x3F80, 0xC380, 0xFF7F, 0x4000, 0x0000, 0x0001, 0x3F00, 0x0001};
  for (const float value : check.normal(600, 20.0f)) numbers.push_back(bf16_of(value));
  std::vector<std::uint32_t> operands;
  for (std::size_t i = 0; i + 6 <= numbers.size(); i += 6) {
    for (std::size_t j = 0; j < 3; ++j) {
      operands.push_back(numbers[i + j] | std::uint32_t{numbers[i + 3 + j]} << 16);
    }
  }
  const auto count = static_cast<int>(operands.size() / 3);
  const DeviceArray<std::uint32_t> input(&check, operands);
  const DeviceArray<std::uint32_t> results(&check, operands.size() / 3);
  launch_multiply_add(input.data(), results.data(), count, check.stream());
  const std::vector<std::uint32_t> got = results.read();
  for (std::size_t i = 0; i < got.size() * 2; ++i) {
    const float a = float_of(numbers[3 * i]);
    const float b = float_of(numbers[3 * i + 1]);
    const float c = float_of(numbers[3 * i + 2]);
    const double exact = double{a} * b + c;
    const auto bits = static_cast<std::uint16_t>(got[i / 2] >> i % 2 * 16);
    // None of its neighbours is nearer, and of two that are as near it is the even one.
    bool is_nearest = true;
    const double error = std::abs(exact - float_of(bits));
    for (const int distance : {-1, 1}) {
      const auto other = static_cast<std::uint16_t>(bits + distance);
      const double other_error = std::abs(exact - float_of(other));
      if (other_error < error || (other_error == error && bits % 2 == 1)) is_nearest = false;
    }
    if (std::isinf(float_of(bits))) is_nearest = std::abs(exact) > 3.39e38;
    if (bits % 0x8000 == 0) is_nearest = std::abs(exact) <= 4.6e-41;
    check.expect(is_nearest, std::to_string(a) + " × " + std::to_string(b) + " + " +
                                 std::to_string(c) + " is " + std::to_string(float_of(bits)));
  }
}

KERNEL_CHECK(instructions_widen_bytes) {
  std::vector<std::uint32_t> words;
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    words.push_back(byte | (byte * 7 + 1) % 256 << 8 | (byte * 11 + 2) % 256 << 16 |
                    (byte * 13 + 3) % 256 << 24);
  }
  for (const DType kv : {DType::kI8, DType::kF8}) {
    const DeviceArray<std::uint32_t> input(&check, words);
    const DeviceArray<std::uint32_t> results(&check, 512);
    launch_widen(kv, input.data(), results.data(), 256, check.stream());
    const std::vector<std::uint32_t> got = results.read();
    for (std::size_t i = 0; i < 1024; ++i) {
      const auto byte = static_cast<std::uint8_t>(words[i / 4] >> i % 4 * 8);
      if (kv == DType::kF8 && byte % 128 == 127) continue;  // stands for no number
      const std::uint32_t pair = got[i / 4 * 2 + i % 2];
      const float value = float_of(static_cast<std::uint16_t>(pair >> i % 4 / 2 * 16));
      check.expect(value == value_of(kv, byte), std::string(dtype_name(kv)) + ", byte " +
                                                    std::to_string(byte) + " is " +
                                                    std::to_string(value));
    }
  }
}

KERNEL_CHECK(instructions_round_to_bytes) {
  for (const DType kv : {DType::kI8, DType::kF8}) {
    std::vector<std::uint8_t> bytes;  // of numbers, in the order of these
    for (int i = 127; i > 0; --i)
      bytes.push_back(static_cast<std::uint8_t>(kv == DType::kI8 ? -i : 127 + i));
    for (int i = 0; i < 127; ++i) bytes.push_back(static_cast<std::uint8_t>(i));
    if (kv == DType::kI8) bytes.push_back(127);
    std::vector<float> values = {0.0f, -0.0f, 1e-39f};
    std::vector<std::uint8_t> nearest = {0, 0, 0};
    const auto add = [&](double value, std::uint8_t byte) {
      values.push_back(static_cast<float>(value));
      nearest.push_back(byte);
    };
    for (std::size_t i = 1; i < bytes.size(); ++i) {
      const double low = value_of(kv, bytes[i - 1]);
      const double high = value_of(kv, bytes[i]);
      add(low, bytes[i - 1]);
      add(low * 0.501 + high * 0.499, bytes[i - 1]);
      add(low * 0.499 + high * 0.501, bytes[i]);
      add((low + high) / 2, bytes[bytes[i] % 2 == 0 ? i : i - 1]);
    }
    const DeviceArray<float> input(&check, values);
    const DeviceArray<std::uint32_t> results(&check, values.size());
    launch_narrow(kv, input.data(), results.data(), static_cast<int>(values.size()),
                  check.stream());
    const std::vector<std::uint32_t> got = results.read();
    for (std::size_t i = 0; i < values.size(); ++i) {
      const auto byte = static_cast<std::uint8_t>(got[i]);
      check.expect(got[i] < 256 && value_of(kv, byte) == value_of(kv, nearest[i]),
                   std::string(dtype_name(kv)) + " of " + std::to_string(values[i]) + " is " +
                       std::to_string(got[i]) + ", not " + std::to_string(nearest[i]));
    }
  }
}

}  // namespace batchmill::testing
