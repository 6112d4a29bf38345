#include "engine/cpu/cpu_backend.h"

#include <omp.h>

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstring>
#include <stdexcept>

#include "engine/cpu/cpu_memory.h"
#include "engine/cpu/kv_layout.h"
#include "engine/dequantize.h"
#include "engine/rope.h"

namespace batchmill {
namespace {

DType activations_for(DType weights, InstructionSet set) {
  if (weights != DType::kI8) return weights;
  return set == InstructionSet::kAvx512Bf16 ? DType::kBF16 : DType::kF32;
}

// Elements below which a loop runs on the calling thread alone: about ten microseconds of work.
constexpr std::int64_t kMinParallelElements = 16384;

// Rows per thread below which threads share the columns of a product: each would read all weights
// for few rows.
constexpr std::int32_t kMinChainedRows = 16;
// A larger matrix leaves no room in a cache for the rows that it meets, and should be read once.
constexpr std::int64_t kMaxChainedBytes = std::int64_t{16} << 20;

}  // namespace

CpuBackend::CpuBackend(DType dtype, std::int32_t num_threads, InstructionSet set,
                       bool deterministic)
    : dtype_(dtype),
      kernels_(kernels_for(set)),
      num_threads_(std::min(num_threads, omp_get_thread_limit())),
      team_(num_threads_, dtype == DType::kI8 ? TeamKind::kOwn : TeamKind::kOpenMp),
      chain_(&team_),
      gemm_(activations_for(dtype, set), deterministic ? &kernels_ : nullptr),
      int8_gemm_(kernels_, &team_) {
  if (num_threads < 1) throw std::invalid_argument("a CPU backend needs at least one thread");
  // oneDNN divides a product by the threads it asked for: with fewer, parts of it stay undone.
  omp_set_dynamic(0);
}

std::string CpuBackend::describe() const {
  return std::string("cpu ") + dtype_name(dtype_) + ", " + std::to_string(num_threads_) +
         " threads, kernels " + instruction_set_name(kernels_.set);
}

std::unique_ptr<DeviceBuffer> CpuBackend::allocate(std::size_t bytes) {
  return allocate_cpu_buffer(bytes);
}

void CpuBackend::upload(std::span<const std::byte> host, void* device) {
  std::memcpy(device, host.data(), host.size());
}

void CpuBackend::download(const Tensor& device, std::span<float> host) {
  const auto cols = static_cast<std::size_t>(device.cols);
  divide_now(device.rows, device.cols, [&](std::int32_t i) {
    std::memcpy(host.data() + static_cast<std::size_t>(i) * cols, device.row<float>(i),
                cols * sizeof(float));
  });
}

std::unique_ptr<KvCache> CpuBackend::make_kv_cache(const KvCacheShape& shape) {
  if (shape.block_size_tokens < 1 || shape.block_size_tokens % kKvGroupTokens != 0) {
    throw std::runtime_error("the block size must be a multiple of " +
                             std::to_string(kKvGroupTokens) + " tokens, not " +
                             std::to_string(shape.block_size_tokens));
  }
  const std::int32_t width = shape.latent_dim > 0 ? shape.latent_dim : shape.head_dim;
  if (width % 16 != 0) {
    throw std::runtime_error("the head size must be a multiple of 16, not " +
                             std::to_string(width));
  }
  if (shape.dtype == DType::kF8) throw std::runtime_error("the CPU has no KV cache in fp8");
  if (shape.dtype == DType::kI8 && shape.latent_dim > 0) {
    throw std::runtime_error("a KV cache of latent rows cannot be int8");
  }
  if (shape.dtype == DType::kI8 && shape.head_dim > kMaxHeadDim) {
    throw std::runtime_error("an int8 KV cache takes head sizes up to " +
                             std::to_string(kMaxHeadDim) + ", not " +
                             std::to_string(shape.head_dim));
  }
  return std::make_unique<KvCache>(shape, allocate(shape.bytes()));
}

std::unique_ptr<Matrix> CpuBackend::make_matrix(std::int32_t out_features, std::int32_t in_features,
                                                const RowSource& rows,
                                                std::span<const float> bias) {
  if (dtype_ == DType::kI8 && Int8Gemm::can_pack(in_features)) {
    return int8_gemm_.pack(out_features, in_features, rows, bias);
  }
  omp_set_num_threads(num_threads_);
  return gemm_.pack(out_features, in_features, rows, bias);
}

std::unique_ptr<DeviceBuffer> CpuBackend::make_table(std::int32_t rows, std::int32_t cols,
                                                     const RowSource& source) {
  const Tensor table{nullptr, activation_dtype(), rows, cols};
  auto buffer = allocate(table.bytes());
  std::vector<std::vector<float>> work(static_cast<std::size_t>(num_threads_),
                                       std::vector<float>(static_cast<std::size_t>(cols)));
  team_.divide(num_threads_, rows, [&](std::int32_t i, std::int32_t thread) {
    std::vector<float>& row = work[static_cast<std::size_t>(thread)];
    source(i, row.data());
    std::byte* target =
        static_cast<std::byte*>(buffer->data()) + static_cast<std::size_t>(i) * table.row_bytes();
    if (table.dtype == DType::kF32) {
      std::memcpy(target, row.data(), table.row_bytes());
    } else {
      std::transform(row.begin(), row.end(), reinterpret_cast<std::uint16_t*>(target),
                     bfloat16_from_float);
    }
  });
  return buffer;
}

std::int32_t CpuBackend::threads_for(std::int32_t rows, std::int32_t cols) const {
  return std::int64_t{rows} * cols < kMinParallelElements ? 1 : num_threads_;
}

std::byte* CpuBackend::reserve_work(std::size_t bytes) {
  if (work_ == nullptr || work_->size_bytes() < bytes) {
    work_.reset();
    work_ = allocate(bytes);
  }
  return static_cast<std::byte*>(work_->data());
}

bool CpuBackend::is_chained(std::int32_t rows) const {
  return dtype_ == DType::kI8 && rows >= kMinChainedRows * num_threads_;
}

void CpuBackend::begin_step(const Batch& batch, const HeadShape& heads) {
  omp_set_num_threads(num_threads_);  // a setting of the calling thread
  finish();
  batch_ = &batch;
  heads_ = heads;
  no_rotation_.assign(static_cast<std::size_t>(heads.head_dim / 2), 1.0f);
  no_rotation_.resize(static_cast<std::size_t>(heads.head_dim), 0.0f);
  attention_planned_ = false;
}

void CpuBackend::embed(const Tensor& table, float scale, const Tensor& output) {
  const auto widen = kernels_.widen[index_of(table.dtype)];
  divide_rows(output.rows, output.cols, [=, this](std::int32_t i) {
    const TokenId token = batch_->token_ids[static_cast<std::size_t>(i)];
    widen(row_of(table, token), output.cols, scale, output.row<float>(i));
  });
}

void CpuBackend::add_positions(const Tensor& table, const Tensor& sum) {
  divide_rows(sum.rows, sum.cols, [=, this](std::int32_t i) {
    const std::int32_t position = batch_->positions[static_cast<std::size_t>(i)];
    assert(position < table.rows);
    kernels_.add_row(table.row<float>(position), sum.cols, 1.0f, sum.row<float>(i));
  });
}

void CpuBackend::rotation_table(const Rotation& rotation, const Tensor& output) {
  const std::int32_t half = rotation.frequencies.cols;
  const float* frequencies = rotation.frequencies.row<float>(0);
  const float magnitude = rotation.config.attention_factor;
  const RopeConfig* config = &rotation.config;
  divide_rows(output.rows, 16 * output.cols, [=, this](std::int32_t i) {
    const std::int32_t position = batch_->positions[static_cast<std::size_t>(i)];
    const float growth = rope_base_growth(*config, position);
    float* row = output.row<float>(i);
    for (std::int32_t j = 0; j < half; ++j) {
      float frequency = frequencies[j];
      if (growth != 1.0f) {
        frequency *= std::pow(growth, -static_cast<float>(j) / static_cast<float>(half - 1));
      }
      const float angle = static_cast<float>(position) * frequency;
      row[j] = std::cos(angle) * magnitude;
      row[half + j] = std::sin(angle) * magnitude;
    }
  });
}

void CpuBackend::norm_row(const float* input, const Norm& norm, std::int32_t cols, DType dtype,
                          void* output) const {
  const float* weight = norm.weight.row<float>(0);
  if (norm.kind == NormKind::kRms) {
    kernels_.rms_norm[index_of(dtype)](input, weight, cols, norm.epsilon, output);
  } else {
    kernels_.layer_norm[index_of(dtype)](input, weight, norm.bias.row<float>(0), cols, norm.epsilon,
                                         output);
  }
}

void CpuBackend::norm(const Tensor& input, const Norm& norm, const Tensor& output) {
  divide_rows(input.rows, input.cols, [=, this](std::int32_t i) {
    norm_row(input.row<float>(i), norm, input.cols, output.dtype, row_of(output, i));
  });
}

void CpuBackend::norm_add(const Tensor& input, const Norm& norm, const Tensor& sum) {
  divide_rows(input.rows, input.cols, [=, this](std::int32_t i) {
    float* row = input.row<float>(i);
    norm_row(row, norm, input.cols, DType::kF32, row);
    kernels_.add_row(row, sum.cols, 1.0f, sum.row<float>(i));
  });
}

void CpuBackend::convert(const Tensor& input, const Tensor& output) {
  const auto narrow = kernels_.narrow[index_of(output.dtype)];
  divide_rows(input.rows, input.cols,
              [=](std::int32_t i) { narrow(input.row<float>(i), input.cols, row_of(output, i)); });
}

void CpuBackend::matmul(const Tensor& input, const Matrix& weight, const Tensor& output) {
  multiply(input, weight, output, false);
}

bool CpuBackend::matmul_to_host(const Tensor& input, const Matrix& weight, std::span<float> host,
                                LogitsScan* scan) {
  const auto* matrix = dynamic_cast<const Int8Matrix*>(&weight);
  if (matrix == nullptr) return false;  // oneDNN's products need room for rows in excess
  finish();
  scan->resize(input.rows, weight.out_features());
  int8_gemm_.run(input, *matrix, {host.data(), DType::kF32, input.rows, weight.out_features()},
                 false, scan);
  return true;
}

void CpuBackend::matmul_add(const Tensor& input, const Matrix& weight, const Tensor& sum) {
  multiply(input, weight, sum, true);
}

void CpuBackend::multiply(const Tensor& input, const Matrix& weight, const Tensor& output,
                          bool accumulate) {
  if (const auto* matrix = dynamic_cast<const Int8Matrix*>(&weight)) {
    const std::int64_t bytes = std::int64_t{weight.out_features()} * weight.in_features();
    if (is_chained(input.rows) && bytes <= kMaxChainedBytes) {
      int8_gemm_.reserve_block(*matrix);
      chain_.add(input.rows, [this, input, matrix, output, accumulate](
                                 std::int32_t first, std::int32_t count, std::int32_t thread) {
        int8_gemm_.run_block(input, *matrix, output, accumulate, first, count, thread);
      });
      return;
    }
    finish();
    int8_gemm_.run(input, *matrix, output, accumulate);
  } else {
    finish();
    gemm_.run(input, static_cast<const PackedMatrix&>(weight), output, accumulate);
  }
}

std::vector<std::string> CpuBackend::gemm_implementations() const {
  std::vector<std::string> lines = gemm_.implementations();
  if (dtype_ == DType::kI8) lines.push_back(int8_gemm_.implementation());
  return lines;
}

void CpuBackend::activate(Activation activation, const Tensor& input, const Tensor& output) {
  const bool gated = input.cols > output.cols;
  const auto kernel =
      kernels_
          .activate[static_cast<std::size_t>(activation)][gated ? 1 : 0][index_of(output.dtype)];
  divide_rows(output.rows, 4 * output.cols,
              [=](std::int32_t i) { kernel(row_of(input, i), output.cols, row_of(output, i)); });
}

void CpuBackend::gather_logits_rows(const Tensor& input, const Tensor& output) {
  finish();
  for (std::int32_t i = 0; i < output.rows; ++i) {
    const std::int32_t row = batch_->logits_rows[static_cast<std::size_t>(i)];
    std::memcpy(row_of(output, i), row_of(input, row), output.row_bytes());
  }
}

void CpuBackend::mean_rows(const Tensor& input, const Tensor& output) {
  divide_now(output.rows, input.cols, [&](std::int32_t s) {
    float* mean = output.row<float>(s);
    std::fill_n(mean, output.cols, 0.0f);
    const std::int32_t end = batch_->cu_seqlens[static_cast<std::size_t>(s) + 1];
    for (std::int32_t i = batch_->cu_seqlens[static_cast<std::size_t>(s)]; i < end; ++i) {
      kernels_.add_row(input.row<float>(i), input.cols, 1.0f, mean);
    }
    double squares = 0;  // the length takes the division by the number of rows out again
    for (std::int32_t j = 0; j < output.cols; ++j) squares += double{mean[j]} * mean[j];
    const auto factor = static_cast<float>(1.0 / std::max(std::sqrt(squares), 1e-12));
    for (std::int32_t j = 0; j < output.cols; ++j) mean[j] *= factor;
  });
}

}  // namespace batchmill
