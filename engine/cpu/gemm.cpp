#include "engine/cpu/gemm.h"

#include <omp.h>

#include <algorithm>
#include <stdexcept>

#include "engine/dequantize.h"

namespace batchmill {
namespace {

// The packed layout is oneDNN's choice for this many rows; it serves all counts.
constexpr std::int32_t kPackingRows = 256;

dnnl::memory::data_type dnnl_type(DType dtype) {
  return dtype == DType::kF32 ? dnnl::memory::data_type::f32 : dnnl::memory::data_type::bf16;
}

std::int32_t round_up(std::int32_t value, std::int32_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

}  // namespace

// A oneDNN primitive with its arguments; only their addresses change from call to call.
struct Gemm::Primitive {
  dnnl::matmul matmul;
  std::unordered_map<int, dnnl::memory> arguments;
  std::string implementation;
};

Gemm::Gemm(DType dtype) : dtype_(dtype), engine_(dnnl::engine::kind::cpu, 0), stream_(engine_) {}

Gemm::~Gemm() = default;

std::int32_t Gemm::padded_rows(std::int32_t rows) {
  if (rows <= 8) return rows;
  if (rows <= 64) return round_up(rows, 8);
  if (rows <= 1024) return round_up(rows, 32);
  return round_up(rows, 64);
}

dnnl::memory::desc Gemm::packed_description(std::int32_t out_features, std::int32_t in_features) {
  const auto found = packed_.find({out_features, in_features});
  if (found != packed_.end()) return found->second;
  using Tag = dnnl::memory::format_tag;
  const dnnl::memory::desc source({kPackingRows, in_features}, dnnl_type(dtype_), Tag::ab);
  const dnnl::memory::desc weights({in_features, out_features}, dnnl_type(dtype_), Tag::any);
  const dnnl::memory::desc target({kPackingRows, out_features}, dnnl_type(dtype_), Tag::ab);
  const dnnl::matmul::primitive_desc description(dnnl::matmul::desc(source, weights, target),
                                                 engine_);
  return packed_[{out_features, in_features}] = description.weights_desc();
}

std::unique_ptr<PackedMatrix> Gemm::pack(std::int32_t out_features, std::int32_t in_features,
                                         const RowSource& rows) {
  const std::size_t row_elements = static_cast<std::size_t>(in_features);
  auto plain = allocate_cpu_buffer(row_elements * out_features *
                                   static_cast<std::size_t>(dtype_bytes(dtype_)));
#pragma omp parallel
  {
    std::vector<float> row(row_elements);
#pragma omp for schedule(static)
    for (std::int64_t i = 0; i < out_features; ++i) {
      if (dtype_ == DType::kF32) {
        rows(i, static_cast<float*>(plain->data()) + i * in_features);
        continue;
      }
      rows(i, row.data());
      auto* target = static_cast<std::uint16_t*>(plain->data()) + i * in_features;
      std::transform(row.begin(), row.end(), target, bfloat16_from_float);
    }
  }
  const dnnl::memory::desc description = packed_description(out_features, in_features);
  dnnl::memory packed(description, engine_, arena_.allocate(description.get_size()));
  dnnl::memory source(
      {{in_features, out_features}, dnnl_type(dtype_), dnnl::memory::format_tag::ba}, engine_,
      plain->data());
  dnnl::reorder(source, packed).execute(stream_, source, packed);
  stream_.wait();
  return std::make_unique<PackedMatrix>(out_features, in_features, packed);
}

Gemm::Primitive& Gemm::primitive(const Key& key) {
  auto& slot = primitives_[key];
  if (slot != nullptr) return *slot;
  const auto& [out_features, in_features, rows, output_dtype, accumulate] = key;
  using Tag = dnnl::memory::format_tag;
  const dnnl::memory::desc source({rows, in_features}, dnnl_type(dtype_), Tag::ab);
  const dnnl::memory::desc target({rows, out_features}, dnnl_type(output_dtype), Tag::ab);
  const dnnl::memory::desc weights = packed_description(out_features, in_features);
  dnnl::primitive_attr attributes;
  if (accumulate) {
    dnnl::post_ops sum;
    sum.append_sum();
    attributes.set_post_ops(sum);
  }
  const dnnl::matmul::primitive_desc description(dnnl::matmul::desc(source, weights, target),
                                                 attributes, engine_);
  auto made = std::make_unique<Primitive>();
  made->matmul = dnnl::matmul(description);
  made->implementation = description.impl_info_str();
  made->arguments = {{DNNL_ARG_SRC, dnnl::memory(source, engine_, nullptr)},
                     {DNNL_ARG_WEIGHTS, dnnl::memory(weights, engine_, nullptr)},
                     {DNNL_ARG_DST, dnnl::memory(target, engine_, nullptr)}};
  slot = std::move(made);
  return *slot;
}

void Gemm::run(const Tensor& input, const PackedMatrix& matrix, const Tensor& output,
               bool accumulate) {
  Primitive& gemm = primitive({matrix.out_features(), matrix.in_features(), padded_rows(input.rows),
                               output.dtype, accumulate});
  gemm.arguments[DNNL_ARG_SRC].set_data_handle(input.data);
  gemm.arguments[DNNL_ARG_WEIGHTS] = matrix.memory();
  gemm.arguments[DNNL_ARG_DST].set_data_handle(output.data);
  gemm.matmul.execute(stream_, gemm.arguments);
  stream_.wait();
}

std::vector<std::string> Gemm::implementations() const {
  std::vector<std::string> lines;
  for (const auto& [key, gemm] : primitives_) {
    lines.push_back(std::to_string(std::get<0>(key)) + "x" + std::to_string(std::get<1>(key)) +
                    " rows " + std::to_string(std::get<2>(key)) + ": " + gemm->implementation);
  }
  return lines;
}

}  // namespace batchmill
