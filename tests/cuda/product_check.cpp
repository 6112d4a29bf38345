#include "cuda/product_kernels.h"

#include <algorithm>
#include <string>
#include <utility>

#include "tests/cuda/check.h"

namespace batchmill::testing {
namespace {

struct Product {
  int rows;
  int out;
  int in;
  bool is_f32;
  bool has_bias;
  bool accumulate;
};

class Weights {
 public:
  Weights(Check* check, int out, int in)
      : check_(*check),
        input_(rounded(check->normal(kMaxProductRows * static_cast<std::size_t>(in)))),
        weight_(rounded(
            check->normal(static_cast<std::size_t>(out) * static_cast<std::size_t>(in), 0.1f))),
        bias_(check->normal(static_cast<std::size_t>(out))),
        before_(check->normal(kMaxProductRows * static_cast<std::size_t>(out))) {}

  std::vector<double> expected(const Product& product) const {
    std::vector<double> sums;
    const auto in = static_cast<std::size_t>(product.in);
    for (std::size_t i = 0; i < count(product); ++i) {
      const std::size_t row = i / static_cast<std::size_t>(product.out);
      const std::size_t out = i % static_cast<std::size_t>(product.out);
      double sum = product.accumulate ? double{before_[i]} : 0.0;
      if (product.has_bias) sum += double{bias_[out]};
      for (std::size_t k = 0; k < in; ++k) {
        sum += double{input_[row * in + k]} * weight_[out * in + k];
      }
      sums.push_back(sum);
    }
    return sums;
  }

  std::vector<float> run(const Product& product) const {
    const auto in_count =
        static_cast<std::size_t>(product.rows) * static_cast<std::size_t>(product.in);
    const DeviceArray<std::uint16_t> input(
        &check_, bf16_of({input_.begin(), input_.begin() + static_cast<std::ptrdiff_t>(in_count)}));
    const DeviceArray<std::uint16_t> weight(&check_, bf16_of(weight_));
    const DeviceArray<float> bias(&check_, bias_);
    const DeviceArray<float> wide(
        &check_, {before_.begin(), before_.begin() + static_cast<std::ptrdiff_t>(count(product))});
    const DeviceArray<std::uint16_t> narrow(&check_, count(product));
    void* output = product.is_f32 ? static_cast<void*>(wide.data()) : narrow.data();
    launch_product({weight.data(), input.data(), product.has_bias ? bias.data() : nullptr, output,
                    product.rows, product.out, product.in, product.is_f32, product.accumulate},
                   check_.stream());
    return product.is_f32 ? wide.read() : float_of(narrow.read());
  }

 private:
  static std::size_t count(const Product& product) {
    return static_cast<std::size_t>(product.rows) * static_cast<std::size_t>(product.out);
  }

  Check& check_;
  std::vector<float> input_;
  std::vector<float> weight_;
  std::vector<float> bias_;
  std::vector<float> before_;
};

}  // namespace

KERNEL_CHECK(products_of_few_rows) {
  // Parts of chunks, of turns and of blocks; and long sums of few outputs.
  for (const auto& [out, in] : {std::pair{144, 256}, {40, 80}, {17, 8}, {33, 1160}, {30, 4872}}) {
    const Weights weights(&check, out, in);
    for (const int rows : {1, 3, 8}) {
      for (const bool has_bias : {false, true}) {
        const std::string what = std::to_string(rows) + " × " + std::to_string(out) + " × " +
                                 std::to_string(in) + (has_bias ? ", bias" : "");
        for (const bool accumulate : {false, true}) {
          const Product wide{rows, out, in, true, has_bias, accumulate};
          check.expect_near((what + (accumulate ? ", added" : ", f32")).c_str(), weights.run(wide),
                            weights.expected(wide), 1e-4);
        }
        const Product narrow{rows, out, in, false, has_bias, false};
        check.expect_near((what + ", bf16").c_str(), weights.run(narrow), weights.expected(narrow),
                          0.006);
      }
    }
  }
}

KERNEL_CHECK(products_of_rows_alone) {
  const Weights weights(&check, 48, 2200);
  const std::vector<float> all = weights.run({8, 48, 2200, true, false, false});
  for (int rows = 1; rows < 8; ++rows) {
    const std::vector<float> some = weights.run({rows, 48, 2200, true, false, false});
    check.expect(std::equal(some.begin(), some.end(), all.begin()),
                 "a row's sum depends on the rows beside it");
  }
}

}  // namespace batchmill::testing
