// The CPU backend's operations at SmolLM2's shapes, beside oneDNN alone where it does the same:
// Google Benchmark. BATCHMILL_BENCH_THREADS sets the number of threads (default 2).
#include <benchmark/benchmark.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>

#include "engine/cpu/cpu_backend.h"
#include "engine/cpu/speed_probe.h"
#include "engine/dequantize.h"
#include "tests/bench/model_shapes.h"

namespace batchmill::bench {
namespace {

std::int32_t num_threads() {
  const char* text = std::getenv("BATCHMILL_BENCH_THREADS");
  return text == nullptr ? 2 : std::max(1, std::atoi(text));
}

// Row-major memory of a backend with values between -1 and 1.
class Values {
 public:
  Values(CpuBackend* backend, DType dtype, std::int32_t rows, std::int32_t cols)
      : tensor_{nullptr, dtype, rows, cols} {
    memory_ =
        backend->allocate(Tensor{nullptr, dtype, backend->padded_rows(rows), cols}.bytes() + 64);
    tensor_.data = memory_->data();
    std::mt19937 random(kSeed);
    std::uniform_real_distribution<float> uniform(-1.0f, 1.0f);
    for (std::int64_t i = 0; i < std::int64_t{rows} * cols; ++i) {
      const float value = uniform(random);
      if (dtype == DType::kF32) {
        tensor_.row<float>(0)[i] = value;
      } else {
        tensor_.row<std::uint16_t>(0)[i] = bfloat16_from_float(value);
      }
    }
  }
  operator const Tensor&() const { return tensor_; }

 private:
  std::unique_ptr<DeviceBuffer> memory_;
  Tensor tensor_;
};

std::unique_ptr<Matrix> random_matrix(CpuBackend* backend, std::int32_t out, std::int32_t in) {
  return backend->make_matrix(out, in, [in](std::int64_t row, float* values) {
    std::mt19937 random(kSeed + static_cast<std::uint32_t>(row));
    std::normal_distribution<float> normal(0.0f, 0.05f);
    for (std::int32_t i = 0; i < in; ++i) values[i] = normal(random);
  });
}

void set_operations(benchmark::State& state, double operations) {
  state.counters["GOP/s"] =
      benchmark::Counter(operations / 1e9, benchmark::Counter::kIsIterationInvariantRate);
}
void set_bytes(benchmark::State& state, double bytes) {
  state.counters["GB/s"] =
      benchmark::Counter(bytes / 1e9, benchmark::Counter::kIsIterationInvariantRate);
}

// The backend's product, rotation and quantising included.
void product(benchmark::State& state, DType dtype, ProductShape shape, std::int32_t rows) {
  CpuBackend backend(dtype, num_threads());
  const auto matrix = random_matrix(&backend, shape.out, shape.in);
  const Values input(&backend, backend.activation_dtype(), rows, shape.in);
  const Values output(&backend, DType::kF32, rows, shape.out);
  Batch batch = make_batch(1, rows, rows, 0);
  backend.begin_step(batch, kHeads);
  for (auto _ : state) {
    backend.matmul(input, *matrix, output);
    backend.finish();
  }
  set_operations(state, 2.0 * rows * shape.out * shape.in);
  set_bytes(state, 1.0 * dtype_bytes(dtype) * shape.out * shape.in);
}

void onednn_product(benchmark::State& state, DType dtype, ProductShape shape, std::int32_t rows) {
  ProductProbe probe(dtype, num_threads(), rows, shape.out, shape.in);
  probe.run();
  if (!probe.result_is_right()) state.SkipWithError("wrong result");
  for (auto _ : state) probe.run();
  set_operations(state, probe.operations());
}

// Attention of one layer.
void attention(benchmark::State& state, DType kv_dtype, std::int32_t num_seqs, std::int32_t context,
               std::int32_t rows, std::int32_t shared) {
  CpuBackend backend(DType::kI8, num_threads());
  const Batch batch = make_batch(num_seqs, context, rows, shared);
  const std::int32_t num_blocks = num_seqs * batch.max_blocks;
  const auto cache = backend.make_kv_cache(
      {1, num_blocks, kBlockSize, kHeads.num_kv_heads, kHeads.head_dim, kv_dtype});
  // Finite in all types.
  std::memset(cache->layer(0), 0x3c, cache->shape().bytes());
  const Values qkv(&backend, backend.activation_dtype(), batch.num_tokens(), kHeads.qkv_cols());
  const Values output(&backend, backend.activation_dtype(), batch.num_tokens(),
                      kHeads.num_heads * kHeads.head_dim);
  AttentionRule rule;
  rule.scale = 0.125f;
  // The plan of a step is made once for all layers.
  backend.begin_step(batch, kHeads);
  for (auto _ : state) {
    backend.attention(qkv, *cache, 0, rule, output);
    backend.finish();
  }
  double pairs = 0.0;
  for (const std::int32_t position : batch.positions) pairs += position + 1.0;
  set_operations(state, 4.0 * pairs * kHeads.num_heads * kHeads.head_dim);
  const double tokens = shared + static_cast<double>(num_seqs) * (context - shared);
  set_bytes(state, tokens * 2 * kHeads.num_kv_heads * cache->shape().token_bytes());
}

void rotate_and_store(benchmark::State& state, DType kv_dtype, std::int32_t num_seqs,
                      std::int32_t rows) {
  CpuBackend backend(DType::kI8, num_threads());
  const Batch batch = make_batch(num_seqs, 900, rows, 0);
  const auto cache = backend.make_kv_cache(
      {1, num_seqs * batch.max_blocks, kBlockSize, kHeads.num_kv_heads, kHeads.head_dim, kv_dtype});
  const Values qkv(&backend, backend.activation_dtype(), batch.num_tokens(), kHeads.qkv_cols());
  const Values rotations(&backend, DType::kF32, batch.num_tokens(), kHeads.head_dim);
  backend.begin_step(batch, kHeads);
  for (auto _ : state) {
    backend.rotate_and_store(qkv, {}, rotations, *cache, 0);
    backend.finish();
  }
  state.SetItemsProcessed(state.iterations() * batch.num_tokens());
}

void norm(benchmark::State& state, std::int32_t rows) {
  CpuBackend backend(DType::kI8, num_threads());
  const Values input(&backend, DType::kF32, rows, kHidden);
  const Values weight(&backend, DType::kF32, 1, kHidden);
  const Values output(&backend, backend.activation_dtype(), rows, kHidden);
  const Norm rms{NormKind::kRms, weight, {}, 1e-5f};
  const Batch batch = make_batch(1, rows, rows, 0);
  backend.begin_step(batch, kHeads);
  for (auto _ : state) {
    backend.norm(input, rms, output);
    backend.finish();
  }
  state.SetItemsProcessed(state.iterations() * rows);
}

void activate(benchmark::State& state, std::int32_t rows) {
  CpuBackend backend(DType::kI8, num_threads());
  const DType dtype = backend.activation_dtype();
  const Values input(&backend, dtype, rows, 2 * kIntermediate);
  const Values output(&backend, dtype, rows, kIntermediate);
  const Batch batch = make_batch(1, rows, rows, 0);
  backend.begin_step(batch, kHeads);
  for (auto _ : state) {
    backend.activate(Activation::kSilu, input, output);
    backend.finish();
  }
  state.SetItemsProcessed(state.iterations() * rows);
}

void read_memory(benchmark::State& state) {
  ReadProbe probe(num_threads());
  for (auto _ : state) probe.run();
  set_bytes(state, probe.bytes());
}

void add(const std::string& name, const std::function<void(benchmark::State&)>& body) {
  benchmark::RegisterBenchmark(name.c_str(), body)->Unit(benchmark::kMicrosecond)->UseRealTime();
}

void register_all() {
  for (const DType dtype : {DType::kI8, DType::kBF16}) {
    const std::string type = dtype_name(dtype);
    for (const std::int32_t rows : {1, 64, 900, 2048}) {
      for (const ProductShape shape : kLayerProducts) {
        const std::string name = type + "/" + std::to_string(shape.out) + "x" +
                                 std::to_string(shape.in) + "/rows:" + std::to_string(rows);
        add("product/" + name, [=](auto& state) { product(state, dtype, shape, rows); });
        add("onednn/" + name, [=](auto& state) { onednn_product(state, dtype, shape, rows); });
      }
    }
    for (const std::int32_t rows : {1, 64}) {
      add("vocabulary/" + type + "/rows:" + std::to_string(rows), [=](auto& state) {
        product(state, dtype, {kVocabulary, kHidden}, rows);
      });
    }
    add("attention/" + type + " KV/prefill of 900",
        [=](auto& state) { attention(state, dtype, 1, 900, 900, 0); });
    add("attention/" + type + " KV/last 400 of 900",
        [=](auto& state) { attention(state, dtype, 4, 900, 400, 0); });
    add("attention/" + type + " KV/decode 1 of 900",
        [=](auto& state) { attention(state, dtype, 1, 900, 1, 0); });
    add("attention/" + type + " KV/decode 64 of 900",
        [=](auto& state) { attention(state, dtype, 64, 900, 1, 0); });
    add("attention/" + type + " KV/decode 64 of 900 that share 512",
        [=](auto& state) { attention(state, dtype, 64, 900, 1, 512); });
    add("rotate and store/" + type + " KV/900 rows",
        [=](auto& state) { rotate_and_store(state, dtype, 1, 900); });
    add("rotate and store/" + type + " KV/64 decodes",
        [=](auto& state) { rotate_and_store(state, dtype, 64, 1); });
  }
  for (const std::int32_t rows : {64, 900}) {
    add("norm/rows:" + std::to_string(rows), [=](auto& state) { norm(state, rows); });
    add("activation/rows:" + std::to_string(rows), [=](auto& state) { activate(state, rows); });
  }
  add("read memory", read_memory);
}

}  // namespace
}  // namespace batchmill::bench

int main(int argc, char** argv) {
  batchmill::bench::register_all();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
