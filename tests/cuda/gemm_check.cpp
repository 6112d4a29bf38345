#include "cuda/gemm.h"

#include "tests/cuda/check.h"

namespace batchmill::testing {
namespace {

struct Product {
  int rows;
  int out;
  int in;
  DType output;
  bool has_bias;
  bool accumulate;
};

void check_product(Check& check, CudaGemm& gemm, const Product& product) {
  const auto rows = static_cast<std::size_t>(product.rows);
  const auto out = static_cast<std::size_t>(product.out);
  const auto in = static_cast<std::size_t>(product.in);
  const std::vector<float> input = rounded(check.normal(rows * in));
  const std::vector<float> weight = rounded(check.normal(out * in, 0.1f));
  const std::vector<float> bias = rounded(check.normal(out));
  const std::vector<float> before = check.normal(rows * out);

  const DeviceArray<std::uint16_t> device_input(&check, bf16_of(input));
  const DeviceArray<std::uint16_t> device_weight(&check, bf16_of(weight));
  CudaMatrix matrix(product.out, product.in);
  CudaStream& queue = check.queue();
  queue.copy_on_device(matrix.weights.data(), device_weight.data(), out * in * 2);
  if (product.has_bias) {
    const DeviceArray<float> wide(&check, bias);
    const DeviceArray<std::uint16_t> narrow(&check, bf16_of(bias));
    matrix.bias_f32 = std::make_unique<CudaBuffer>(out * 4);
    matrix.bias_bf16 = std::make_unique<CudaBuffer>(out * 2);
    queue.copy_on_device(matrix.bias_f32->data(), wide.data(), out * 4);
    queue.copy_on_device(matrix.bias_bf16->data(), narrow.data(), out * 2);
    queue.synchronize();
  }
  std::vector<double> expected;
  for (std::size_t r = 0; r < rows; ++r) {
    for (std::size_t o = 0; o < out; ++o) {
      double sum = product.accumulate ? double{before[r * out + o]} : 0.0;
      if (product.has_bias) sum += double{bias[o]};
      for (std::size_t k = 0; k < in; ++k) sum += double{input[r * in + k]} * weight[o * in + k];
      expected.push_back(sum);
    }
  }
  const Tensor in_tensor{device_input.data(), DType::kBF16, product.rows, product.in};
  const std::string what = std::to_string(product.rows) + " × " + std::to_string(product.out) +
                           " × " + std::to_string(product.in) + (product.has_bias ? ", bias" : "") +
                           (product.accumulate ? ", added" : "");
  if (product.output == DType::kF32) {
    const DeviceArray<float> output(&check, before);
    gemm.run(in_tensor, matrix, {output.data(), DType::kF32, product.rows, product.out},
             product.accumulate);
    check.expect_near((what + ", f32").c_str(), output.read(), expected, 1e-4);
  } else {
    const DeviceArray<std::uint16_t> output(&check, rows * out);
    gemm.run(in_tensor, matrix, {output.data(), DType::kBF16, product.rows, product.out}, false);
    check.expect_near((what + ", bf16").c_str(), float_of(output.read()), expected, 0.006);
  }
}

}  // namespace

KERNEL_CHECK(products) {
  CudaGemm gemm(&check.queue());
  for (const int rows : {1, 2, 8, 48, 64, 192}) {
    for (const bool has_bias : {false, true}) {
      check_product(check, gemm, {rows, 144, 256, DType::kBF16, has_bias, false});
      check_product(check, gemm, {rows, 256, 80, DType::kF32, has_bias, false});
      check_product(check, gemm, {rows, 256, 80, DType::kF32, has_bias, true});
    }
  }
}

}  // namespace batchmill::testing
