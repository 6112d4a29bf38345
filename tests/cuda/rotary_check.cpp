#include "cuda/rotary_kernels.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "tests/cuda/check.h"
#include "tests/cuda/hadamard.h"
#include "tests/cuda/paged_cache.h"

namespace batchmill::testing {
namespace {

struct StoreCase {
  int heads;
  int kv_heads;
  int dim;
  bool norms;
  bool rotates;
  DType kv = DType::kBF16;
};

constexpr int kRows = 5;
constexpr int kBlockTokens = 16;
constexpr int kBlocks = 4;

// Each element is the byte nearest to what it should be, rows that nobody stores are as they were.
// `expected` [block][K, V][kv head][slot][dim], of int8 with mixed keys: NaN where nothing is
// stored.
void check_bytes(Check& check, const StoreCase& shape, const std::vector<std::uint8_t>& cache,
                 const std::vector<double>& expected) {
  const auto dim = static_cast<std::size_t>(shape.dim);
  const double largest = shape.kv == DType::kI8 ? 127 : 448;
  for (std::size_t row = 0; row < expected.size() / dim; ++row) {
    const std::size_t part = row / kBlockTokens;
    const std::size_t slot = row % kBlockTokens;
    const std::uint8_t* first = cache.data() + part * kBlockTokens * (dim + 4);
    float stored_scale;
    std::memcpy(&stored_scale, first + kBlockTokens * dim + slot * 4, sizeof(stored_scale));
    const bool is_key = part / static_cast<std::size_t>(shape.kv_heads) % 2 == 0;
    // A mixed key's is that of its product with a mixed query.
    const double scale = stored_scale * (is_key && shape.kv == DType::kI8 ? shape.dim : 1.0);
    const double* wanted = expected.data() + row * dim;
    const std::string place = "row " + std::to_string(row) + ": ";
    if (std::isnan(wanted[0])) {
      check.expect(std::isnan(scale), place + "stored all the same");
      continue;
    }
    double most = 0;
    for (std::size_t i = 0; i < dim; ++i) most = std::max(most, std::abs(wanted[i]));
    check.expect(std::abs(scale - most / largest) <= 1e-5 * most, place + "another scale");
    for (std::size_t i = 0; i < dim; ++i) {
      const std::uint8_t byte = first[slot * dim + (is_key ? byte_of_key(i) : i)];
      const double got = scale * value_of(shape.kv, byte);
      // Half a step, and what float32 loses.
      const double step = shape.kv == DType::kI8
                              ? scale
                              : std::max(std::abs(wanted[i]) / 8, scale * std::ldexp(1.0, -9));
      check.expect(std::abs(got - wanted[i]) <= 0.501 * step + 1e-6 * most,
                   place + "element " + std::to_string(i) + " is " + std::to_string(got) +
                       ", not " + std::to_string(wanted[i]));
    }
  }
}

void check_store(Check& check, const StoreCase& shape) {
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
  const bool are_bytes = shape.kv != DType::kBF16;
  const std::size_t stored_rows =
      std::size_t{kBlocks} * 2 * kBlockTokens * static_cast<std::size_t>(shape.kv_heads);
  const std::vector<float> cache(stored_rows * dim);
  const std::vector<float> key_offset =
      check.normal(static_cast<std::size_t>(shape.kv_heads) * dim, 4.0f);
  std::vector<double> expected_cache(stored_rows * dim, are_bytes ? std::nan("") : 0.0);
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
      const bool is_key = !is_query && h < shape.heads + shape.kv_heads;
      for (std::size_t i = 0; are_bytes && is_key && i < dim; ++i) {
        head[i] -= key_offset[static_cast<std::size_t>(h - shape.heads) * dim + i];
      }
      if (shape.kv == DType::kI8 && (is_query || is_key)) head = times_hadamard(head);
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
  const DeviceArray<std::uint8_t> device_bytes(&check, stored_rows * (dim + 4));  // holds NaNs
  const DeviceArray<float> offset(&check, key_offset);
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
  if (are_bytes) arguments.cache = device_bytes.data();
  arguments.kv = shape.kv;
  arguments.key_offset = offset.data();  // bf16 do not need it
  arguments.heads = shape.heads;
  arguments.kv_heads = shape.kv_heads;
  arguments.dim = shape.dim;
  arguments.block_tokens = kBlockTokens;
  launch_store(arguments, kRows, check.stream());
  check.expect_near("queries", float_of(qkv.read()), expected, 0.01);
  if (are_bytes) {
    check_bytes(check, shape, device_bytes.read(), expected_cache);
  } else {
    check.expect_near("cache", float_of(device_cache.read()), expected_cache, 0.01);
  }
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
KERNEL_CHECK(rotate_and_store_in_bytes) {
  for (const DType kv : {DType::kI8, DType::kF8}) {
    check_store(check, {4, 2, 64, false, true, kv});
    check_store(check, {3, 1, 16, false, true, kv});
    check_store(check, {4, 2, 32, false, false, kv});
    check_store(check, {2, 1, 256, false, true, kv});
  }
}
// Zeros keep a scale that is a number, and what is not finite has none.
KERNEL_CHECK(store_rows_that_have_no_scale) {
  constexpr std::size_t kDim = 32;
  for (const DType kv : {DType::kI8, DType::kF8}) {
    std::vector<float> rows(4 * 3 * kDim);  // queries, keys and values, one head of each
    rows[3 * kDim + kDim + 5] = std::numeric_limits<float>::infinity();
    rows[6 * kDim + 2 * kDim + 31] = std::nanf("");
    rows[9 * kDim + kDim] = 1e-38f;
    const DeviceArray<std::uint16_t> qkv(&check, bf16_of(rows));
    const DeviceArray<std::int32_t> slots(&check, std::vector<std::int32_t>{0, 1, 2, 3});
    const DeviceArray<std::uint8_t> cache(&check, 2 * 4 * (kDim + 4));
    StoreArguments arguments{};
    arguments.qkv = qkv.data();
    arguments.slots = slots.data();
    arguments.cache = cache.data();
    arguments.heads = 1;
    arguments.kv_heads = 1;
    arguments.dim = kDim;
    arguments.block_tokens = 4;
    arguments.kv = kv;
    launch_store(arguments, 4, check.stream());
    const std::vector<std::uint8_t> got = cache.read();
    float scales[2][4];
    for (std::size_t which = 0; which < 2; ++which) {
      std::memcpy(scales[which], got.data() + which * 4 * (kDim + 4) + 4 * kDim, 16);
      for (std::size_t slot = 0; slot < 4; ++slot) {
        const bool has_scale = slot != which + 1;
        check.expect(std::isfinite(scales[which][slot]) == has_scale,
                     "scale " + std::to_string(which) + ", " + std::to_string(slot));
        const auto first =
            got.begin() + static_cast<std::ptrdiff_t>(which * 4 * (kDim + 4) + slot * kDim);
        check.expect(std::all_of(first, first + kDim, [](std::uint8_t b) { return b % 128 == 0; }),
                     "bytes that are not zeros");
      }
    }
  }
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
