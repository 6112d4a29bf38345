#include "cuda/rotary_kernels.h"

#include <cmath>

#include "tests/cuda/check.h"

namespace batchmill::testing {
namespace {

struct StoreCase {
  int heads;
  int kv_heads;
  int dim;
  bool norms;
  bool rotates;
};

void check_store(Check& check, const StoreCase& shape) {
  constexpr int kRows = 5;
  constexpr int kBlockTokens = 16;
  constexpr int kBlocks = 4;
  constexpr double kEpsilon = 1e-6;
  const std::vector<std::int32_t> slots = {17, 63, 0, -1, 16};
  const int all_heads = shape.heads + 2 * shape.kv_heads;
  const auto dim = static_cast<std::size_t>(shape.dim);
  const std::size_t half = dim / 2;
  const std::vector<float> input =
      rounded(check.normal(kRows * static_cast<std::size_t>(all_heads) * dim));
  const std::vector<float> norms[2] = {check.normal(dim), check.normal(dim)};
  const std::vector<float> angles = check.normal(kRows * half, 3.0f);
  std::vector<float> table(kRows * dim);
  for (std::size_t i = 0; i < angles.size(); ++i) {
    table[i / half * dim + i % half] = std::cos(angles[i]);
    table[i / half * dim + half + i % half] = std::sin(angles[i]);
  }
  std::vector<float> cache(std::size_t{kBlocks} * 2 * kBlockTokens *
                           static_cast<std::size_t>(shape.kv_heads) * dim);
  std::vector<double> expected_cache(cache.begin(), cache.end());
  std::vector<double> expected(input.begin(), input.end());
  for (std::size_t row = 0; row < kRows; ++row) {
    for (int h = 0; h < all_heads; ++h) {
      const std::size_t begin = (row * static_cast<std::size_t>(all_heads) + h) * dim;
      std::vector<double> head(input.begin() + static_cast<std::ptrdiff_t>(begin),
                               input.begin() + static_cast<std::ptrdiff_t>(begin + dim));
      const bool is_query = h < shape.heads;
      if (h < shape.heads + shape.kv_heads) {
        if (shape.norms) {
          double squares = 0;
          for (const double x : head) squares += x * x / static_cast<double>(dim);
          for (std::size_t i = 0; i < dim; ++i) {
            head[i] *= norms[is_query ? 0 : 1][i] / std::sqrt(squares + kEpsilon);
          }
        }
        for (std::size_t i = 0; shape.rotates && i < half; ++i) {
          const double cosine = table[row * dim + i];
          const double sine = table[row * dim + half + i];
          const double first = head[i];
          head[i] = first * cosine - head[half + i] * sine;
          head[half + i] = head[half + i] * cosine + first * sine;
        }
      }
      if (is_query) {
        std::copy(head.begin(), head.end(), expected.begin() + static_cast<std::ptrdiff_t>(begin));
      } else if (slots[row] >= 0) {
        const int part = h - shape.heads;
        const std::size_t target =
            ((static_cast<std::size_t>(slots[row] / kBlockTokens) * 2 * shape.kv_heads + part) *
                 kBlockTokens +
             static_cast<std::size_t>(slots[row] % kBlockTokens)) *
            dim;
        std::copy(head.begin(), head.end(),
                  expected_cache.begin() + static_cast<std::ptrdiff_t>(target));
      }
    }
  }
  const DeviceArray<std::uint16_t> qkv(&check, bf16_of(input));
  const DeviceArray<std::uint16_t> device_cache(&check, bf16_of(cache));
  const DeviceArray<float> query_norm(&check, norms[0]);
  const DeviceArray<float> key_norm(&check, norms[1]);
  const DeviceArray<float> rotations(&check, table);
  const DeviceArray<std::int32_t> device_slots(&check, slots);
  StoreArguments arguments{};
  arguments.qkv = qkv.data();
  arguments.query_norm = shape.norms ? query_norm.data() : nullptr;
  arguments.key_norm = shape.norms ? key_norm.data() : nullptr;
  arguments.epsilon = static_cast<float>(kEpsilon);
  arguments.rotations = shape.rotates ? rotations.data() : nullptr;
  arguments.slots = device_slots.data();
  arguments.cache = device_cache.data();
  arguments.heads = shape.heads;
  arguments.kv_heads = shape.kv_heads;
  arguments.dim = shape.dim;
  arguments.block_tokens = kBlockTokens;
  launch_store(arguments, kRows, check.stream());
  check.expect_near("queries", float_of(qkv.read()), expected, 0.01);
  check.expect_near("cache", float_of(device_cache.read()), expected_cache, 0.01);
}

}  // namespace

KERNEL_CHECK(rotate_and_store) {
  check_store(check, {4, 2, 64, false, true});
  check_store(check, {3, 1, 16, false, true});
}
KERNEL_CHECK(rotate_and_store_with_head_norms) {
  check_store(check, {4, 2, 128, true, true});
  check_store(check, {2, 1, 96, true, true});
  check_store(check, {2, 1, 256, true, true});
}
KERNEL_CHECK(store_without_rotation) { check_store(check, {2, 2, 64, false, false}); }

KERNEL_CHECK(rotation_table) {
  const std::vector<std::int32_t> positions = {0, 1, 77, 131071};
  constexpr int kHalf = 40;
  std::vector<float> frequencies;
  for (int i = 0; i < kHalf; ++i)
    frequencies.push_back(std::pow(10000.0f, -static_cast<float>(i) / 40.0f));
  const DeviceArray<std::int32_t> device_positions(&check, positions);
  const DeviceArray<float> device_frequencies(&check, frequencies);
  const DeviceArray<float> output(&check, positions.size() * 2 * kHalf);
  const auto expect = [&](const char* what, int original, float factor) {
    launch_rotation_table({device_positions.data(), device_frequencies.data(), output.data(), kHalf,
                           1.25f, original, factor},
                          4, check.stream());
    std::vector<double> expected;
    for (const std::int32_t position : positions) {
      std::vector<double> sines;
      const double stretch = (position + 1.0) / std::max(original, 1);
      const bool grows = original > 0 && stretch > 1.0;
      const double growth = grows ? factor * stretch - (factor - 1.0) : 1.0;
      for (int i = 0; i < kHalf; ++i) {
        const double frequency =
            frequencies[static_cast<std::size_t>(i)] * std::pow(growth, -i / (kHalf - 1.0));
        // The product is one of floats in all implementations.
        const double angle =
            grows ? position * frequency
                  : double{static_cast<float>(position) * frequencies[static_cast<std::size_t>(i)]};
        expected.push_back(1.25 * std::cos(angle));
        sines.push_back(1.25 * std::sin(angle));
      }
      expected.insert(expected.end(), sines.begin(), sines.end());
    }
    // Angles of thousands of radians, as floats, are off by as much when the base grows.
    check.expect_near(what, output.read(), expected, original > 0 ? 0.01 : 1e-6);
  };
  expect("plain", 0, 1.0f);
  expect("with a growing base", 64, 2.0f);
}

}  // namespace batchmill::testing
