// The int8 products of every instruction set against float64, and a row against itself in other
// company.
#include "engine/cpu/int8_gemm.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <span>
#include <vector>

#include "engine/cpu/cpu_backend.h"
#include "engine/dequantize.h"

namespace batchmill {
namespace {

struct Shape {
  std::int32_t out;
  std::int32_t in;
};

// A matrix of normal numbers and input rows in the backend's activation type.
class Product {
 public:
  Product(InstructionSet set, const Shape& shape, std::int32_t rows, float outlier = 1.0f)
      : backend_(DType::kI8, 2, set), shape_(shape), rows_(rows) {
    std::mt19937 random(static_cast<std::uint32_t>(shape.out * 7 + shape.in));
    std::normal_distribution<float> normal;
    weights_.resize(static_cast<std::size_t>(shape.out) * shape.in);
    for (float& weight : weights_) weight = normal(random);
    matrix_ = backend_.make_matrix(shape.out, shape.in, [&](std::int64_t row, float* values) {
      std::copy_n(weights_.begin() + row * shape.in, shape.in, values);
    });
    memory_ = backend_.allocate(static_cast<std::size_t>(rows) * shape.in * sizeof(float));
    input_ = {memory_->data(), backend_.activation_dtype(), rows, shape.in};
    for (std::int64_t i = 0; i < std::int64_t{rows} * shape.in; ++i) {
      set_input(i, normal(random) * (i % shape.in == 3 ? outlier : 1.0f));
    }
  }

  void set_input(std::int64_t index, float value) {
    if (input_.dtype == DType::kF32) {
      input_.row<float>(0)[index] = value;
    } else {
      input_.row<std::uint16_t>(0)[index] = bfloat16_from_float(value);
    }
  }

  float input(std::int64_t index) const {
    return input_.dtype == DType::kF32 ? input_.row<float>(0)[index]
                                       : float_from_bfloat16(input_.row<std::uint16_t>(0)[index]);
  }

  // Of rows `first` to `first + count`, added to `start`.
  std::vector<float> run(std::int32_t first, std::int32_t count, bool add = false,
                         float start = 0.0f) {
    std::vector<float> result(static_cast<std::size_t>(count) * shape_.out, start);
    const Tensor input{
        static_cast<std::byte*>(input_.data) + static_cast<std::size_t>(first) * input_.row_bytes(),
        input_.dtype, count, shape_.in};
    const Tensor output{result.data(), DType::kF32, count, shape_.out};
    add ? backend_.matmul_add(input, *matrix_, output) : backend_.matmul(input, *matrix_, output);
    backend_.finish();
    return result;
  }

  std::vector<float> run_to_host(LogitsScan* scan) {
    std::vector<float> result(static_cast<std::size_t>(rows_) * shape_.out);
    EXPECT_TRUE(backend_.matmul_to_host(input_, *matrix_, result, scan));
    return result;
  }

  std::vector<float> run_bf16() {
    std::vector<std::uint16_t> result(static_cast<std::size_t>(rows_) * shape_.out);
    backend_.matmul(input_, *matrix_, {result.data(), DType::kBF16, rows_, shape_.out});
    backend_.finish();
    std::vector<float> values;
    for (const std::uint16_t bits : result) values.push_back(float_from_bfloat16(bits));
    return values;
  }

  // Root mean square of the error, in those of the exact results.
  double relative_error(const std::vector<float>& actual) const {
    double errors = 0;
    double squares = 0;
    for (std::int32_t row = 0; row < rows_; ++row) {
      for (std::int32_t out = 0; out < shape_.out; ++out) {
        double sum = 0;
        for (std::int32_t i = 0; i < shape_.in; ++i) {
          sum += double{input(std::int64_t{row} * shape_.in + i)} *
                 weights_[static_cast<std::size_t>(out) * shape_.in + i];
        }
        const double error = actual[static_cast<std::size_t>(row) * shape_.out + out] - sum;
        errors += error * error;
        squares += sum * sum;
      }
    }
    return std::sqrt(errors / squares);
  }

  bool is_int8() const { return dynamic_cast<const Int8Matrix*>(matrix_.get()) != nullptr; }

 private:
  CpuBackend backend_;
  Shape shape_;
  std::int32_t rows_;
  std::vector<float> weights_;
  std::unique_ptr<Matrix> matrix_;
  std::unique_ptr<DeviceBuffer> memory_;
  Tensor input_;
};

class Int8GemmTest : public ::testing::TestWithParam<InstructionSet> {};

// Of normal numbers, weights and rows lose less than 1 % each.
TEST_P(Int8GemmTest, IsNearTheExactProduct) {
  for (const Shape& shape : {Shape{960, 576}, Shape{64, 1536}, Shape{30, 896}, Shape{100, 48},
                             Shape{16, 16}, Shape{17, 4096}, Shape{40, 80}}) {
    SCOPED_TRACE(std::to_string(shape.out) + "x" + std::to_string(shape.in));
    Product product(GetParam(), shape, 23);
    ASSERT_TRUE(product.is_int8());
    EXPECT_LT(product.relative_error(product.run(0, 23)), 0.015);
    EXPECT_LT(product.relative_error(product.run_bf16()), 0.016);
  }
}

TEST_P(Int8GemmTest, AddsToWhatIsThere) {
  Product product(GetParam(), {33, 192}, 9);
  const auto plain = product.run(0, 9);
  const auto added = product.run(0, 9, true, 1000.0f);
  for (std::size_t i = 0; i < plain.size(); ++i) ASSERT_NEAR(added[i], plain[i] + 1000.0f, 2e-4f);
}

// Parts of a row are scanned by different threads; a NaN anywhere must still be found.
TEST_P(Int8GemmTest, ScansWhatItWritesToTheHost) {
  for (const Shape& shape : {Shape{30, 48}, Shape{64, 48}, Shape{1000, 80}, Shape{2085, 48}}) {
    for (const std::int32_t rows : {1, 2, 7, 100}) {
      SCOPED_TRACE(std::to_string(shape.out) + " outputs, " + std::to_string(rows) + " rows");
      Product product(GetParam(), shape, rows);
      LogitsScan scan;
      const auto logits = product.run_to_host(&scan);
      EXPECT_EQ(logits, product.run(0, rows));
      for (std::int32_t row = 0; row < rows; ++row) {
        const std::span<const float> values(logits.data() + std::int64_t{row} * shape.out,
                                            static_cast<std::size_t>(shape.out));
        std::vector<float> maxima(num_scan_blocks(values.size()));
        scan_blocks(values, maxima);
        ASSERT_TRUE(std::ranges::equal(scan.row(row), maxima));
        EXPECT_TRUE(range_of(scan.row(row)).is_valid);
      }
      product.set_input(0, std::numeric_limits<float>::quiet_NaN());
      product.run_to_host(&scan);
      EXPECT_FALSE(range_of(scan.row(0)).is_valid);
      if (rows == 1) continue;
      EXPECT_TRUE(range_of(scan.row(1)).is_valid);
    }
  }
}

TEST_P(Int8GemmTest, SpreadsAnOutlyingChannel) {
  // Alone it would take the other channels 7 of their 8 bits.
  Product product(GetParam(), {64, 576}, 16, 100.0f);
  const double error = product.relative_error(product.run(0, 16));
  EXPECT_LT(error, 0.015);
}

TEST_P(Int8GemmTest, RowsDoNotDependOnTheirNumber) {
  constexpr std::int32_t kMost = 300;
  for (const Shape& shape : {Shape{576, 576}, Shape{200, 1536}}) {
    Product product(GetParam(), shape, kMost);
    const auto expected = product.run(0, kMost);
    const auto expected_sum = product.run(0, kMost, true, 0.7f);
    for (std::int32_t rows = 1; rows <= kMost; rows += rows < 30 ? 1 : 9) {
      const auto count = static_cast<std::ptrdiff_t>(rows) * shape.out;
      const std::int32_t first = kMost - rows;
      const auto offset = static_cast<std::ptrdiff_t>(first) * shape.out;
      for (const bool add : {false, true}) {
        const auto& all = add ? expected_sum : expected;
        const auto begin = product.run(0, rows, add, add ? 0.7f : 0.0f);
        const auto end = product.run(first, rows, add, add ? 0.7f : 0.0f);
        ASSERT_TRUE(std::equal(begin.begin(), begin.end(), all.begin(), all.begin() + count))
            << rows << " rows";
        ASSERT_TRUE(std::equal(end.begin(), end.end(), all.begin() + offset, all.end()))
            << rows << " rows";
      }
    }
  }
}

TEST_P(Int8GemmTest, SaysNothingAboutARowThatIsNotFinite) {
  constexpr std::int32_t kWidth = 64;
  Product product(GetParam(), {32, kWidth}, 5);
  product.set_input(kWidth + 9, std::numeric_limits<float>::quiet_NaN());
  product.set_input(3 * kWidth + 9, -std::numeric_limits<float>::infinity());
  for (std::int64_t i = 4 * kWidth; i < 5 * kWidth; ++i) product.set_input(i, 0.0f);
  const auto result = product.run(0, 5);
  for (std::size_t i = 0; i < result.size(); ++i) {
    const std::size_t row = i / 32;
    EXPECT_EQ(std::isnan(result[i]), row == 1 || row == 3) << "row " << row;
    if (row == 4) {
      EXPECT_EQ(result[i], 0.0f);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(InstructionSets, Int8GemmTest,
                         ::testing::ValuesIn(supported_instruction_sets()),
                         [](const auto& set) { return instruction_set_name(set.param); });

}  // namespace
}  // namespace batchmill
