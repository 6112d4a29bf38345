#include "cuda/cuda_backend.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdio>
#include <cstring>
#include <exception>
#include <mutex>
#include <stdexcept>
#include <thread>

#include "cuda/activation_kernels.h"
#include "cuda/attention_kernels.h"
#include "cuda/attention_shapes.h"
#include "cuda/bf16.h"
#include "cuda/model_limits.h"
#include "cuda/product_kernels.h"
#include "cuda/rotary_kernels.h"
#include "cuda/row_kernels.h"
#include "cuda/sampler_kernels.h"

namespace batchmill {
namespace {

constexpr std::array<std::int32_t, 9> kRowBuckets = {1, 2, 4, 8, 16, 24, 32, 48, 64};
constexpr std::size_t kStagingBytes = 32 << 20;
constexpr std::size_t kMaxProductBytes = 128 << 20;  // beyond, cuBLASLt reads weights as fast

[[noreturn]] void refuse(const std::string& what) {
  throw std::runtime_error("the CUDA backend has no " + what);
}
// `what`: "norm of 20000 columns, 16384 at most"
[[noreturn]] void refuse(const char* what, std::int32_t count, const char* of, std::int32_t most) {
  refuse(what + (" of " + std::to_string(count)) + " " + of + ", " + std::to_string(most) +
         " at most");
}

const float* floats_of(const Tensor& tensor) { return static_cast<const float*>(tensor.data); }

}  // namespace

CudaBackend::CudaBackend(std::int32_t device)
    : device_(device), facts_(device_facts(device)), stream_(device), gemm_(&stream_) {}

CudaBackend::~CudaBackend() = default;

std::string CudaBackend::describe() const {
  return "cuda:" + std::to_string(device_) + " " + facts_.name + ", bf16, " + gemm_.describe();
}

std::unique_ptr<DeviceBuffer> CudaBackend::allocate(std::size_t bytes) {
  stream_.use();
  ++generation_;
  return std::make_unique<CudaBuffer>(bytes);
}

void CudaBackend::upload(std::span<const std::byte> host, void* device) {
  if (staging_ == nullptr) staging_ = std::make_unique<PinnedBuffer>(kStagingBytes);
  for (std::size_t done = 0; done < host.size();) {
    const std::size_t bytes = std::min(host.size() - done, staging_->size_bytes());
    std::memcpy(staging_->data(), host.data() + done, bytes);
    stream_.copy_to_device(static_cast<std::byte*>(device) + done, staging_->data(), bytes);
    stream_.synchronize();
    done += bytes;
  }
}

void CudaBackend::download(const Tensor& device, std::span<float> host) {
  if (staging_ == nullptr || staging_->size_bytes() < device.bytes()) {
    staging_.reset();
    staging_ = std::make_unique<PinnedBuffer>(std::max(device.bytes(), kStagingBytes));
  }
  stream_.copy_to_host(staging_->data(), device.data, device.bytes());
  stream_.synchronize();
  std::memcpy(host.data(), staging_->data(), device.bytes());
}

std::unique_ptr<KvCache> CudaBackend::make_kv_cache(const KvCacheShape& shape) {
  if (shape.latent_dim > 0) refuse("latent attention");
  if (shape.dtype == DType::kF32) refuse("KV cache in float32");
  const bool has_scales = shape.dtype != DType::kBF16;
  if (shape.block_size_tokens < 1 ||
      !std::has_single_bit(static_cast<std::uint32_t>(shape.block_size_tokens))) {
    throw std::runtime_error("the block size must be a power of two on CUDA, not " +
                             std::to_string(shape.block_size_tokens));
  }
  if (!is_attention_dim(shape.head_dim)) {
    throw std::runtime_error("the CUDA backend takes head sizes 16, 32, 64, 128 and 256, not " +
                             std::to_string(shape.head_dim));
  }
  if (has_scales && shape.block_size_tokens < kFewestByteBlockTokens) {
    throw std::runtime_error(
        "with KV caches in int8 and fp8 a block has at least 4 tokens on CUDA, not " +
        std::to_string(shape.block_size_tokens));
  }
  if (const std::int32_t needed = least_attention_shared_bytes(shape.head_dim, shape.dtype);
      needed > facts_.shared_bytes) {
    throw std::runtime_error("attention over heads of " + std::to_string(shape.head_dim) +
                             " needs " + std::to_string(needed) + " bytes of shared memory, " +
                             facts_.name + " has " + std::to_string(facts_.shared_bytes));
  }
  if (has_scales && shape.layer_bytes() > std::size_t{kLargestByteLayer}) {
    throw std::runtime_error("a layer's KV cache in int8 or fp8 has 32 GiB at most on CUDA");
  }
  block_tokens_ = shape.block_size_tokens;
  return std::make_unique<KvCache>(shape, allocate(shape.bytes()));
}

// Rounds rows to bf16 in pinned memory, several threads at a time, and sends them.
void CudaBackend::copy_rows(std::int32_t rows, std::int32_t cols, const RowSource& source,
                            void* device) {
  const std::size_t row_bytes = static_cast<std::size_t>(cols) * 2;
  if (staging_ == nullptr || staging_->size_bytes() < row_bytes) {
    staging_.reset();
    staging_ = std::make_unique<PinnedBuffer>(std::max(row_bytes, kStagingBytes));
  }
  const auto chunk = static_cast<std::int32_t>(
      std::min<std::size_t>(staging_->size_bytes() / row_bytes, static_cast<std::size_t>(rows)));
  const auto num_threads =
      static_cast<std::int32_t>(std::clamp(std::thread::hardware_concurrency(), 1u, 16u));
  for (std::int32_t begin = 0; begin < rows; begin += chunk) {
    const std::int32_t end = std::min(rows, begin + chunk);
    std::mutex mutex;
    std::exception_ptr failure;  // the first of any thread
    const auto convert = [&](std::int32_t first) {
      try {
        std::vector<float> row(static_cast<std::size_t>(cols));
        for (std::int32_t i = first; i < end; i += num_threads) {
          source(i, row.data());
          auto* target =
              reinterpret_cast<std::uint16_t*>(staging_->data() + (i - begin) * row_bytes);
          std::transform(row.begin(), row.end(), target, bf16_of);
        }
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (failure == nullptr) failure = std::current_exception();
      }
    };
    {
      std::vector<std::jthread> threads;  // joined also if one cannot be started
      for (std::int32_t i = 1; i < std::min(num_threads, end - begin); ++i) {
        threads.emplace_back(convert, begin + i);
      }
      convert(begin);
    }
    if (failure != nullptr) std::rethrow_exception(failure);
    const std::size_t bytes = static_cast<std::size_t>(end - begin) * row_bytes;
    stream_.copy_to_device(static_cast<std::byte*>(device) + begin * row_bytes, staging_->data(),
                           bytes);
    stream_.synchronize();
  }
}

std::unique_ptr<Matrix> CudaBackend::make_matrix(std::int32_t out_features,
                                                 std::int32_t in_features, const RowSource& rows,
                                                 std::span<const float> bias) {
  auto matrix = std::make_unique<CudaMatrix>(out_features, in_features);
  copy_rows(out_features, in_features, rows, matrix->weights.data());
  if (!bias.empty()) {
    matrix->bias_f32 = std::make_unique<CudaBuffer>(bias.size_bytes());
    upload(std::as_bytes(bias), matrix->bias_f32->data());
    std::vector<std::uint16_t> narrow(bias.size());
    std::transform(bias.begin(), bias.end(), narrow.begin(), bf16_of);
    matrix->bias_bf16 = std::make_unique<CudaBuffer>(bias.size() * 2);
    upload(std::as_bytes(std::span(narrow)), matrix->bias_bf16->data());
  }
  return matrix;
}

std::unique_ptr<DeviceBuffer> CudaBackend::make_table(std::int32_t rows, std::int32_t cols,
                                                      const RowSource& source) {
  auto buffer = allocate(static_cast<std::size_t>(rows) * static_cast<std::size_t>(cols) * 2);
  copy_rows(rows, cols, source, buffer->data());
  return buffer;
}

std::int32_t CudaBackend::padded_rows(std::int32_t rows) const {
  for (const std::int32_t bucket : kRowBuckets) {
    if (rows <= bucket) return bucket;
  }
  return (rows + 63) / 64 * 64;
}

void CudaBackend::begin_step(const Batch& batch, const HeadShape& heads) {
  stream_.use();
  batch_ = &batch;
  heads_ = heads;
  if (heads.num_kv_heads == 0) refuse("latent attention");
  const std::int32_t group = heads.num_heads / heads.num_kv_heads;
  if (group > kMaxGroup) refuse("group", group, "query heads", kMaxGroup);
  const std::int32_t rows = batch.num_tokens();
  is_decode_ = rows > 0 && rows == batch.num_seqs() && rows <= kMaxRecordedRows &&
               batch.logits_rows.size() == batch.token_ids.size();
  if (arrays_.send(batch, is_decode_ ? padded_rows(rows) : rows, &stream_)) ++generation_;
  launch_take_drawn(arrays_.drawn_tokens(), draws_.chosen(), arrays_.token_ids(),
                    static_cast<int>(batch.drawn_tokens.size()), stream_.handle());
  for (const auto& rule : rules_) rule->is_planned = false;
  if (rows == 0) return;
  for (const auto& rule : rules_) plan(rule.get());
}

void CudaBackend::plan(PlannedRule* rule) {
  constexpr std::size_t kAlignment = 16;
  const AttentionRows rows{
      batch_->cu_seqlens,  batch_->context_lens, heads_.num_heads / heads_.num_kv_heads,
      rule->window_tokens, rule->causal,         batch_->block_tables,
      batch_->max_blocks,  block_tokens_,        heads_.num_kv_heads};
  std::size_t bytes = 0;
  std::int32_t partial_rows = 0;
  rule->num_parts = 0;
  for (std::size_t first = 0; first < batch_->context_lens.size();) {
    if (rule->parts.size() == rule->num_parts) rule->parts.emplace_back();
    PlanPart& part = rule->parts[rule->num_parts++];
    first = part.plan.make(rows, first, most_partial_rows());
    part.offset = bytes;
    bytes += (part.plan.packed_bytes() + kAlignment - 1) / kAlignment * kAlignment;
    partial_rows = std::max(partial_rows, part.plan.num_partial_rows());
    num_shared_keys_ += part.plan.num_shared_keys();
  }
  if (rule->upload.reserve(bytes, &stream_)) ++generation_;
  std::byte* target = rule->upload.begin_write();
  for (std::size_t i = 0; i < rule->num_parts; ++i) {
    rule->parts[i].plan.pack(target + rule->parts[i].offset);
  }
  rule->upload.send(bytes, &stream_);
  rule->is_planned = true;
  reserve_partials(partial_rows);
}

void CudaBackend::reserve_partials(std::int32_t rows) {
  const auto bytes_of = [&](std::int32_t count, std::int32_t cols) {
    return static_cast<std::size_t>(count) * static_cast<std::size_t>(heads_.num_kv_heads * cols) *
           sizeof(float);
  };
  const std::int32_t cols = heads_.head_dim;
  if (partial_sums_ != nullptr && partial_outputs_->size_bytes() >= bytes_of(rows, cols)) return;
  // With some room for contexts to grow, but no more than is planned for.
  const std::int32_t room = std::max(rows, std::min(rows + rows / 8, most_partial_rows()));
  stream_.synchronize();
  ++generation_;
  partial_outputs_.reset();
  partial_sums_.reset();
  partial_outputs_ = std::make_unique<CudaBuffer>(bytes_of(room, cols));
  partial_sums_ = std::make_unique<CudaBuffer>(bytes_of(room, 2));
}

std::int32_t CudaBackend::most_partial_rows() const {
  return partial_rows_limit_ > 0
             ? partial_rows_limit_
             : batchmill::most_partial_rows(heads_.num_kv_heads, heads_.head_dim);
}

bool CudaBackend::has_parts() const {
  return std::any_of(rules_.begin(), rules_.end(),
                     [](const auto& rule) { return rule->is_planned && rule->num_parts > 1; });
}

CudaBackend::PlannedRule& CudaBackend::planned_rule(const AttentionRule& rule) {
  for (const auto& known : rules_) {
    if (known->window_tokens != rule.window_tokens || known->causal != rule.causal) continue;
    if (!known->is_planned) plan(known.get());
    return *known;
  }
  rules_.push_back(std::make_unique<PlannedRule>());
  rules_.back()->window_tokens = rule.window_tokens;
  rules_.back()->causal = rule.causal;
  plan(rules_.back().get());
  return *rules_.back();
}

void CudaBackend::run_step(std::int32_t rows, const StepOperations& operations) {
  if (!is_decode_) return operations(rows);
  const std::int32_t padded = padded_rows(rows);
  if (has_parts()) return operations(padded);  // another step may have another number of them
  Recording& recording = recordings_[padded];
  if (recording.generation != generation_) {
    // Once without recording: algorithms are chosen, kernels are loaded and memory grows.
    recording = {};
    operations(padded);
    recording.generation = generation_;
    return;
  }
  if (recording.graph != nullptr) {
    ++num_replayed_steps_;
  } else if (!recording.has_failed) {
    recording.graph = record(padded, operations);
    recording.has_failed = recording.graph == nullptr;
  }
  if (recording.graph == nullptr) return operations(padded);
  stream_.launch(*recording.graph);
}

std::unique_ptr<CudaGraph> CudaBackend::record(std::int32_t rows,
                                               const StepOperations& operations) {
  try {
    stream_.begin_capture();
    operations(rows);
    return stream_.end_capture();
  } catch (const std::exception& error) {
    stream_.abandon_capture();
    if (++num_failed_recordings_ == 1) {
      std::fprintf(stderr, "%s: steps of %d rows are sent as they are, recording them failed: %s\n",
                   describe().c_str(), rows, error.what());
    }
    return nullptr;
  }
}

void CudaBackend::copy_blocks(const KvCache& cache) {
  const KvCacheShape& shape = cache.shape();
  launch_block_copy(
      {arrays_.copies(), cache.layer(0), static_cast<long long>(shape.layer_bytes()),
       2 * shape.num_kv_heads, shape.block_size_tokens, shape.head_dim * dtype_bytes(shape.dtype),
       shape.dtype == DType::kBF16 ? 0 : 4},
      static_cast<int>(batch_->copies.size()), shape.num_layers, stream_.handle());
}

void CudaBackend::embed(const Tensor& table, float scale, const Tensor& output) {
  launch_embed(arrays_.token_ids(), table.data, scale, static_cast<float*>(output.data),
               output.rows, output.cols, stream_.handle());
}

void CudaBackend::add_positions(const Tensor& table, const Tensor& sum) {
  launch_add_rows(arrays_.positions(), floats_of(table), static_cast<float*>(sum.data), sum.rows,
                  sum.cols, stream_.handle());
}

void CudaBackend::rotation_table(const Rotation& rotation, const Tensor& output) {
  const RopeConfig& config = rotation.config;
  const bool grows = config.scaling == RopeScaling::kDynamic;
  launch_rotation_table(
      {arrays_.positions(), floats_of(rotation.frequencies), static_cast<float*>(output.data),
       rotation.frequencies.cols, config.attention_factor,
       grows ? config.original_context_tokens : 0, config.factor},
      output.rows, stream_.handle());
}

void CudaBackend::run_norm(const Tensor& input, const Norm& norm, void* output, NormOutput kind) {
  if (input.cols > kMaxNormCols) refuse("norm", input.cols, "columns", kMaxNormCols);
  launch_norm({floats_of(input), floats_of(norm.weight),
               norm.kind == NormKind::kLayer ? floats_of(norm.bias) : nullptr, output, input.cols,
               norm.epsilon},
              kind, input.rows, stream_.handle());
}

void CudaBackend::norm(const Tensor& input, const Norm& norm, const Tensor& output) {
  run_norm(input, norm, output.data,
           output.dtype == DType::kF32 ? NormOutput::kF32 : NormOutput::kBf16);
}

void CudaBackend::norm_add(const Tensor& input, const Norm& norm, const Tensor& sum) {
  run_norm(input, norm, sum.data, NormOutput::kAdd);
}

void CudaBackend::convert(const Tensor& input, const Tensor& output) {
  launch_convert(floats_of(input), output.data, static_cast<long long>(input.rows) * input.cols,
                 stream_.handle());
}

void CudaBackend::matmul(const Tensor& input, const Matrix& weight, const Tensor& output) {
  multiply(input, weight, output, false);
}

void CudaBackend::matmul_add(const Tensor& input, const Matrix& weight, const Tensor& sum) {
  multiply(input, weight, sum, true);
}

bool CudaBackend::draws_tokens(std::int32_t vocab_size) const {
  return vocab_size <= kMaxSampledVocab;
}

void CudaBackend::begin_draws(const Tensor& logits, std::span<const Draw> draws) {
  draws_.begin(logits, draws, *batch_, &stream_);
}

void CudaBackend::end_draws(std::span<Draw> draws) { draws_.end(draws); }

void CudaBackend::drop_draws() noexcept {
  draws_.drop();
  try {
    stream_.synchronize();
  } catch (const std::exception&) {
    // Of work that nobody waits for any more. A device that is lost says so again.
  }
}

void CudaBackend::multiply(const Tensor& input, const Matrix& weight, const Tensor& output,
                           bool accumulate) {
  if (input.rows == 0) return;
  const auto& matrix = static_cast<const CudaMatrix&>(weight);
  if (input.rows <= kMaxProductRows && matrix.weights.size_bytes() <= kMaxProductBytes) {
    const float* bias =
        matrix.bias_f32 == nullptr ? nullptr : static_cast<const float*>(matrix.bias_f32->data());
    return launch_product(
        {matrix.weights.data(), input.data, bias, output.data, input.rows, weight.out_features(),
         weight.in_features(), output.dtype == DType::kF32, accumulate},
        stream_.handle());
  }
  const std::int32_t rows = padded_rows(input.rows);
  gemm_.run(input.first_rows(rows), matrix, output.first_rows(rows), accumulate);
}

void CudaBackend::rotate_and_store(const Tensor& qkv, const HeadNorms& norms,
                                   const Tensor& rotations, const KvCache& cache,
                                   std::int32_t layer) {
  launch_store(
      {qkv.data, floats_of(norms.query), floats_of(norms.key), norms.epsilon, floats_of(rotations),
       arrays_.slots(), cache.layer(layer), heads_.num_heads, heads_.num_kv_heads, heads_.head_dim,
       cache.shape().block_size_tokens, cache.shape().dtype, floats_of(norms.key_offset)},
      qkv.rows, stream_.handle());
}

void CudaBackend::attention(const Tensor& qkv, const KvCache& cache, std::int32_t layer,
                            const AttentionRule& rule, const Tensor& output) {
  const PlannedRule& planned = planned_rule(rule);
  const bool is_recordable = is_decode_ && planned.num_parts == 1;
  AttentionArguments arguments{};
  arguments.qkv = qkv.data;
  arguments.cache = cache.layer(layer);
  arguments.kv = cache.shape().dtype;
  arguments.block_tables = arrays_.block_tables();
  arguments.output = output.data;
  arguments.partial_outputs = static_cast<float*>(partial_outputs_->data());
  arguments.partial_sums = static_cast<float*>(partial_sums_->data());
  arguments.table_stride = arrays_.table_stride();
  arguments.block_shift =
      std::countr_zero(static_cast<std::uint32_t>(cache.shape().block_size_tokens));
  arguments.heads = heads_.num_heads;
  arguments.kv_heads = heads_.num_kv_heads;
  arguments.dim = heads_.head_dim;
  arguments.scale = rule.scale;
  arguments.window_tokens = rule.window_tokens;
  arguments.causal = rule.causal;
  const AttentionDevice device{facts_.multiprocessors, facts_.shared_bytes};
  for (std::size_t i = 0; i < planned.num_parts; ++i) {
    arguments.plan = planned.upload.device() + planned.parts[i].offset;
    launch_attention(arguments,
                     attention_grid(planned.parts[i].plan, arguments, device, is_recordable),
                     stream_.handle());
  }
}

void CudaBackend::activate(Activation activation, const Tensor& input, const Tensor& output) {
  GateKind kind = GateKind::kSilu;
  if (activation == Activation::kGeluTanh) kind = GateKind::kGeluTanh;
  if (activation == Activation::kGeluErf) kind = GateKind::kGeluErf;
  launch_activation(kind, input.cols > output.cols, input.data, output.data, output.rows,
                    output.cols, stream_.handle());
}

void CudaBackend::gather_logits_rows(const Tensor& input, const Tensor& output) {
  // Two bf16 travel as one float.
  const int floats = output.dtype == DType::kF32 ? output.cols : output.cols / 2;
  launch_gather(arrays_.logits_rows(), floats_of(input), static_cast<float*>(output.data),
                output.rows, floats, stream_.handle());
}

void CudaBackend::mean_rows(const Tensor& input, const Tensor& output) {
  if (input.cols > kMaxMeanCols) refuse("mean", input.cols, "columns", kMaxMeanCols);
  launch_mean(arrays_.cu_seqlens(), floats_of(input), static_cast<float*>(output.data), output.rows,
              output.cols, stream_.handle());
}

void CudaBackend::multiply_heads(const Tensor&, const std::vector<std::unique_ptr<Matrix>>&,
                                 const Tensor&) {
  refuse("latent attention");
}
void CudaBackend::rotate_heads(const Tensor&, const Tensor&, const Tensor&) {
  refuse("latent attention");
}
void CudaBackend::store_latent(const Tensor&, const Norm&, const Tensor&, const KvCache&,
                               std::int32_t) {
  refuse("latent attention");
}
void CudaBackend::latent_attention(const Tensor&, const KvCache&, std::int32_t, float,
                                   const Tensor&) {
  refuse("latent attention");
}
void CudaBackend::add_experts(const Tensor&, const Experts&, Activation, const Tensor&) {
  refuse("mixtures of experts");
}

}  // namespace batchmill
