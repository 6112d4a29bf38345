#include "engine/cpu/gemm.h"

#include <omp.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string_view>

#include "engine/dequantize.h"

namespace batchmill {
namespace {

// The packed layout is oneDNN's choice for this many rows; it serves all counts.
constexpr std::int32_t kPackingRows = 256;

// Matrices are read in slices of about this size, so that no second copy of a whole one is needed.
constexpr std::int64_t kPackingBytes = 2 << 20;

dnnl::memory::data_type dnnl_type(DType dtype) {
  return dtype == DType::kF32 ? dnnl::memory::data_type::f32 : dnnl::memory::data_type::bf16;
}

dnnl::memory::desc bias_description(std::int32_t out_features) {
  return {{1, out_features}, dnnl::memory::data_type::f32, dnnl::memory::format_tag::ab};
}

std::int32_t round_up(std::int32_t value, std::int32_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

// oneDNN's batch-reduce kernels sum each row over the inputs in blocks of a size that depends on
// neither rows nor threads; its older ones divide the sums by both.
bool is_ordered(std::string_view implementation) { return implementation.starts_with("brg"); }

// Columns of a packed matrix [in, out] that lie together; slices are whole multiples of it.
std::int32_t packed_columns(const dnnl::memory::desc& description) {
  if (description.data.format_kind != dnnl_blocked) {
    return static_cast<std::int32_t>(description.data.dims[1]);
  }
  const dnnl_blocking_desc_t& blocking = description.data.format_desc.blocking;
  std::int64_t columns = 1;
  for (int i = 0; i < blocking.inner_nblks; ++i) {
    if (blocking.inner_idxs[i] == 1) columns *= blocking.inner_blks[i];
  }
  return static_cast<std::int32_t>(columns);
}

}  // namespace

// A oneDNN primitive with its arguments; only their addresses change from call to call.
struct Gemm::Primitive {
  dnnl::matmul matmul;
  std::unordered_map<int, dnnl::memory> arguments;
  std::string implementation;
};

Gemm::Gemm(DType dtype, const Kernels* ordered)
    : dtype_(dtype), engine_(dnnl::engine::kind::cpu, 0), stream_(engine_) {
  if (ordered != nullptr) strip_gemm_.emplace(dtype, *ordered);
}

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

bool Gemm::keeps_order(std::int32_t out_features, std::int32_t in_features) {
  using Tag = dnnl::memory::format_tag;
  const dnnl::memory::desc source({kPackingRows, in_features}, dnnl_type(dtype_), Tag::ab);
  const dnnl::memory::desc weights({in_features, out_features}, dnnl_type(dtype_), Tag::any);
  const dnnl::memory::desc target({kPackingRows, out_features}, dnnl_type(dtype_), Tag::ab);
  try {
    const dnnl::matmul::primitive_desc description(dnnl::matmul::desc(source, weights, target),
                                                   engine_);
    return is_ordered(description.impl_info_str());
  } catch (const dnnl::error&) {
    return false;  // oneDNN cannot multiply this type here
  }
}

std::unique_ptr<PackedMatrix> Gemm::pack(std::int32_t out_features, std::int32_t in_features,
                                         const RowSource& rows, std::span<const float> bias) {
  dnnl::memory own_bias = keep_bias(bias);
  if (strip_gemm_ && !keeps_order(out_features, in_features)) {
    return std::make_unique<PackedMatrix>(out_features, in_features,
                                          strip_gemm_->pack(out_features, in_features, rows),
                                          std::move(own_bias));
  }
  const dnnl::memory::desc description = packed_description(out_features, in_features);
  dnnl::memory packed(description, engine_, arena_.allocate(description.get_size()));
  const std::int64_t row_bytes = std::int64_t{in_features} * dtype_bytes(dtype_);
  const std::int32_t unit = packed_columns(description);
  const auto slice = static_cast<std::int32_t>(
      std::max<std::int64_t>(kPackingBytes / (row_bytes * unit), 1) * unit);
  auto plain =
      allocate_cpu_buffer(static_cast<std::size_t>(row_bytes * std::min(slice, out_features)));
  for (std::int32_t begin = 0; begin < out_features; begin += slice) {
    const std::int32_t count = std::min(slice, out_features - begin);
    read_rows(rows, begin, count, in_features, plain->data());
    // Of the whole matrix [in, out], the columns [begin, begin + count).
    dnnl::memory source({{in_features, count}, dnnl_type(dtype_), dnnl::memory::format_tag::ba},
                        engine_, plain->data());
    dnnl::memory target(description.submemory_desc({in_features, count}, {0, begin}), engine_,
                        packed.get_data_handle());
    dnnl::reorder(source, target).execute(stream_, source, target);
    stream_.wait();
  }
  return std::make_unique<PackedMatrix>(out_features, in_features, std::move(packed),
                                        std::move(own_bias));
}

dnnl::memory Gemm::keep_bias(std::span<const float> bias) {
  if (bias.empty()) return {};
  void* values = arena_.allocate(bias.size_bytes());
  std::memcpy(values, bias.data(), bias.size_bytes());
  return {bias_description(static_cast<std::int32_t>(bias.size())), engine_, values};
}

void Gemm::read_rows(const RowSource& rows, std::int64_t first, std::int32_t count,
                     std::int32_t in_features, void* output) const {
#pragma omp parallel
  {
    std::vector<float> row(static_cast<std::size_t>(in_features));
#pragma omp for schedule(static)
    for (std::int64_t i = 0; i < count; ++i) {
      if (dtype_ == DType::kF32) {
        rows(first + i, static_cast<float*>(output) + i * in_features);
        continue;
      }
      rows(first + i, row.data());
      std::transform(row.begin(), row.end(), static_cast<std::uint16_t*>(output) + i * in_features,
                     bfloat16_from_float);
    }
  }
}

Gemm::Primitive& Gemm::primitive(const Key& key) {
  auto& slot = primitives_[key];
  if (slot != nullptr) return *slot;
  const auto& [out_features, in_features, rows, output_dtype, has_bias, accumulate] = key;
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
  const dnnl::matmul::desc operation =
      has_bias ? dnnl::matmul::desc(source, weights, bias_description(out_features), target)
               : dnnl::matmul::desc(source, weights, target);
  const dnnl::matmul::primitive_desc description(operation, attributes, engine_);
  auto made = std::make_unique<Primitive>();
  made->matmul = dnnl::matmul(description);
  made->implementation = description.impl_info_str();
  if (strip_gemm_ && !is_ordered(made->implementation)) {
    throw std::runtime_error("oneDNN's " + made->implementation +
                             " has no fixed order of summing: the model cannot be deterministic");
  }
  made->arguments = {{DNNL_ARG_SRC, dnnl::memory(source, engine_, nullptr)},
                     {DNNL_ARG_WEIGHTS, dnnl::memory(weights, engine_, nullptr)},
                     {DNNL_ARG_DST, dnnl::memory(target, engine_, nullptr)}};
  slot = std::move(made);
  return *slot;
}

void Gemm::run(const Tensor& input, const PackedMatrix& matrix, const Tensor& output,
               bool accumulate) {
  if (matrix.strips() != nullptr) {
    strip_gemm_->run(input, matrix.strips()->data(), matrix.bias_values(), matrix.out_features(),
                     output, accumulate);
    return;
  }
  Primitive& gemm = primitive({matrix.out_features(), matrix.in_features(), padded_rows(input.rows),
                               output.dtype, matrix.has_bias(), accumulate});
  gemm.arguments[DNNL_ARG_SRC].set_data_handle(input.data);
  gemm.arguments[DNNL_ARG_WEIGHTS] = matrix.memory();
  if (matrix.has_bias()) gemm.arguments[DNNL_ARG_BIAS] = matrix.bias();
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
