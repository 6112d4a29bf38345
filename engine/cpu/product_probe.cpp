#include <omp.h>

#include <algorithm>
#include <oneapi/dnnl/dnnl.hpp>
#include <unordered_map>
#include <vector>

#include "engine/cpu/speed_probe.h"
#include "engine/dequantize.h"

namespace batchmill {
namespace {

using dnnl::memory;

// Sums of these are exact in all types: the weights of output `col` are all the same.
int weight_of(std::int32_t col) { return col % 3 - 1; }

memory::data_type input_type(DType dtype) {
  return dtype == DType::kF32    ? memory::data_type::f32
         : dtype == DType::kBF16 ? memory::data_type::bf16
                                 : memory::data_type::u8;
}

void fill(memory* target, DType dtype, std::int64_t begin, std::int64_t count, int value) {
  void* data = target->get_data_handle();
  for (std::int64_t i = begin; i < begin + count; ++i) {
    if (dtype == DType::kF32) {
      static_cast<float*>(data)[i] = static_cast<float>(value);
    } else if (dtype == DType::kBF16) {
      static_cast<std::uint16_t*>(data)[i] = bfloat16_from_float(static_cast<float>(value));
    } else {
      static_cast<std::int8_t*>(data)[i] = static_cast<std::int8_t>(value);
    }
  }
}

}  // namespace

struct ProductProbe::Impl {
  Impl(DType type, std::int32_t num_threads, std::int32_t num_rows, std::int32_t out,
       std::int32_t in)
      : dtype(type),
        threads(std::min(num_threads, omp_get_thread_limit())),
        rows(num_rows),
        out_features(out),
        in_features(in) {
    omp_set_num_threads(threads);
    const auto weight_type = dtype == DType::kI8 ? memory::data_type::s8 : input_type(dtype);
    const auto sum_type = dtype == DType::kI8 ? memory::data_type::s32 : memory::data_type::f32;
    const memory::desc input_desc({rows, in}, input_type(dtype), memory::format_tag::ab);
    const memory::desc any_weight({in, out}, weight_type, memory::format_tag::any);
    const memory::desc output_desc({rows, out}, sum_type, memory::format_tag::ab);
    const dnnl::matmul::primitive_desc plan({input_desc, any_weight, output_desc}, engine);
    product = dnnl::matmul(plan);
    input = memory(input_desc, engine);
    output = memory(output_desc, engine);
    packed = memory(plan.weights_desc(), engine);
    fill(&input, dtype, 0, std::int64_t{rows} * in, 1);
    memory plain({{in, out}, weight_type, memory::format_tag::ba}, engine);
    for (std::int32_t col = 0; col < out; ++col) {
      fill(&plain, dtype, std::int64_t{col} * in, in, weight_of(col));
    }
    dnnl::reorder(plain, packed).execute(stream, plain, packed);
    stream.wait();
    arguments = {{DNNL_ARG_SRC, input}, {DNNL_ARG_WEIGHTS, packed}, {DNNL_ARG_DST, output}};
  }

  DType dtype;
  std::int32_t threads;
  std::int32_t rows;
  std::int32_t out_features;
  std::int32_t in_features;
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
  dnnl::matmul product;
  memory input;
  memory packed;
  memory output;
  std::unordered_map<int, memory> arguments;
};

ProductProbe::ProductProbe(DType dtype, std::int32_t threads, std::int32_t rows,
                           std::int32_t out_features, std::int32_t in_features)
    : impl_(std::make_unique<Impl>(dtype, threads, rows, out_features, in_features)) {}

ProductProbe::~ProductProbe() = default;

void ProductProbe::run() {
  omp_set_num_threads(impl_->threads);
  impl_->product.execute(impl_->stream, impl_->arguments);
  impl_->stream.wait();
}

double ProductProbe::operations() const {
  return 2.0 * impl_->rows * impl_->out_features * impl_->in_features;
}

bool ProductProbe::result_is_right() const {
  const void* sums = impl_->output.get_data_handle();
  for (std::int32_t row = 0; row < impl_->rows; row += 89) {
    for (std::int32_t col = 0; col < impl_->out_features; ++col) {
      const std::int64_t i = std::int64_t{row} * impl_->out_features + col;
      const double sum = impl_->dtype == DType::kI8
                             ? static_cast<double>(static_cast<const std::int32_t*>(sums)[i])
                             : static_cast<double>(static_cast<const float*>(sums)[i]);
      if (sum != impl_->in_features * weight_of(col)) return false;
    }
  }
  return true;
}

}  // namespace batchmill
