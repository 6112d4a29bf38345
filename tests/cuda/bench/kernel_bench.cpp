// Kernels that move rows, and matrix products, at the sizes of an 8B Llama.
#include <algorithm>
#include <cstring>
#include <memory>

#include "cuda/activation_kernels.h"
#include "cuda/gemm.h"
#include "cuda/norm_kernels.h"
#include "cuda/product_kernels.h"
#include "cuda/rotary_kernels.h"
#include "cuda/row_kernels.h"
#include "cuda/sampler_kernels.h"
#include "tests/cuda/bench/bench.h"

namespace batchmill::testing {
namespace {

constexpr double kRowGoal = 0.85;

template <typename T>
std::unique_ptr<CudaBuffer> array_of(Bench* bench, const std::vector<T>& values) {
  auto buffer = std::make_unique<CudaBuffer>(values.size() * sizeof(T));
  PinnedBuffer staging(buffer->size_bytes());
  std::memcpy(staging.data(), values.data(), staging.size_bytes());
  bench->stream().copy_to_device(buffer->data(), staging.data(), staging.size_bytes());
  bench->stream().synchronize();
  return buffer;
}

std::vector<std::int32_t> numbered(int count, int modulus) {
  std::vector<std::int32_t> numbers(static_cast<std::size_t>(count));
  for (int i = 0; i < count; ++i) {
    numbers[static_cast<std::size_t>(i)] =
        static_cast<std::int32_t>(static_cast<long long>(i) * 7919 % modulus);
  }
  return numbers;
}

// Large enough that one call's data is several times the cache.
struct RowSizes {
  explicit RowSizes(bool tiny)
      : rows(tiny ? 64 : 16384), hidden(tiny ? 64 : 4096), inner(tiny ? 128 : 14336) {}
  int rows;
  int hidden;
  int inner;
};

void bench_rows(Bench* bench, const RowSizes& size) {
  const auto cells = static_cast<std::size_t>(size.rows) * static_cast<std::size_t>(size.hidden);
  const double count = static_cast<double>(cells);
  const StreamHandle stream = bench->stream().handle();
  const auto input = bench->numbers(cells, 4);
  const auto output = bench->numbers(cells, 4);
  const auto weight = bench->numbers(static_cast<std::size_t>(size.hidden), 4);
  const auto ids = array_of(bench, numbered(size.rows, size.rows));
  const auto* floats = static_cast<const float*>(input->data());
  auto* target = static_cast<float*>(output->data());
  const auto* id = static_cast<const std::int32_t*>(ids->data());
  NormArguments norm{
      floats, static_cast<const float*>(weight->data()), nullptr, target, size.hidden, 1e-5f};
  bench->kernel("RMS norm", {count * 6, 0, kRowGoal},
                [&](int) { launch_norm(norm, NormOutput::kBf16, size.rows, stream); });
  norm.bias = norm.weight;
  bench->kernel("layer norm", {count * 6, 0, kRowGoal},
                [&](int) { launch_norm(norm, NormOutput::kBf16, size.rows, stream); });
  bench->kernel("conversion to bf16", {count * 6, 0, kRowGoal}, [&](int) {
    launch_convert(floats, target, static_cast<long long>(cells), stream);
  });
  bench->kernel("embedding rows", {count * 6, 0, kRowGoal}, [&](int) {
    launch_embed(id, floats, 1.0f, target, size.rows, size.hidden, stream);
  });
  bench->kernel("gathered rows", {count * 8, 0, kRowGoal},
                [&](int) { launch_gather(id, floats, target, size.rows, size.hidden, stream); });
}

void bench_activation(Bench* bench, const RowSizes& size) {
  const auto cells = static_cast<std::size_t>(size.rows) * static_cast<std::size_t>(size.inner);
  const auto input = bench->numbers(2 * cells, 2);
  const auto output = bench->numbers(cells, 2);
  const double count = static_cast<double>(cells);
  bench->kernel("SiLU × up", {count * 6, 0, kRowGoal}, [&](int) {
    launch_activation(GateKind::kSilu, true, input->data(), output->data(), size.rows, size.inner,
                      bench->stream().handle());
  });
}

void bench_store(Bench* bench, const RowSizes& size) {
  constexpr int kBlockTokens = 16;
  const bool tiny = bench->is_tiny();
  const int heads = tiny ? 4 : 32;
  const int kv_heads = tiny ? 2 : 8;
  const int dim = tiny ? 16 : 128;
  const auto rows = static_cast<std::size_t>(size.rows);
  const auto cols = static_cast<std::size_t>((heads + 2 * kv_heads) * dim);
  const auto qkv = bench->numbers(rows * cols, 2);
  const auto rotations = bench->numbers(rows * static_cast<std::size_t>(dim), 4);
  const auto cache = bench->numbers(rows * 2 * static_cast<std::size_t>(kv_heads * dim), 2);
  const auto slots = array_of(bench, numbered(size.rows, size.rows));
  StoreArguments arguments{qkv->data(),
                           nullptr,
                           nullptr,
                           0.0f,
                           static_cast<const float*>(rotations->data()),
                           static_cast<const std::int32_t*>(slots->data()),
                           cache->data(),
                           heads,
                           kv_heads,
                           dim,
                           kBlockTokens,
                           DType::kBF16,
                           nullptr};
  for (const DType kv : {DType::kBF16, DType::kI8, DType::kF8}) {
    arguments.kv = kv;
    // Queries twice, keys and values read and stored, a rotation per row.
    const double stored = kv == DType::kBF16 ? 2.0 * dim : dim + 4.0;
    const double bytes = static_cast<double>(rows) * (2.0 * dim * (2 * heads + 2 * kv_heads) +
                                                      2 * kv_heads * stored + 4.0 * dim);
    bench->kernel(std::string("rotation and store") +
                      (kv == DType::kBF16 ? "" : std::string(" in ") + dtype_name(kv)),
                  {bytes, 0, kRowGoal},
                  [&](int) { launch_store(arguments, size.rows, bench->stream().handle()); });
  }

  const int copies = size.rows / kBlockTokens / 2;
  std::vector<std::int32_t> list;
  for (int i = 0; i < copies; ++i) list.insert(list.end(), {i, copies + i, kBlockTokens});
  const auto device_list = array_of(bench, list);
  const long long layer_bytes = static_cast<long long>(cache->size_bytes());
  const BlockCopyArguments copy{static_cast<const std::int32_t*>(device_list->data()),
                                cache->data(),
                                layer_bytes,
                                2 * kv_heads,
                                kBlockTokens,
                                2 * dim,
                                0};
  bench->kernel("copied blocks", {static_cast<double>(layer_bytes), 0, kRowGoal},
                [&](int) { launch_block_copy(copy, copies, 1, bench->stream().handle()); });
}

void bench_sampler(Bench* bench) {
  const int vocab = bench->is_tiny() ? 512 : 128256;
  for (const int rows : {1, 64}) {
    for (const bool is_greedy : {true, false}) {
      const auto count = static_cast<std::size_t>(rows) * static_cast<std::size_t>(vocab);
      const auto logits = bench->numbers(count, 4);
      SampleRow row{};
      row.temperature = is_greedy ? 0.0f : 0.8f;
      row.top_p = is_greedy ? 1.0f : 0.95f;
      row.top_k = is_greedy ? 0 : 50;
      row.repetition_penalty = 1.0f;
      std::vector<SampleRow> sampled(static_cast<std::size_t>(rows), row);
      for (int i = 0; i < rows; ++i) sampled[static_cast<std::size_t>(i)].logits_row = i;
      const auto list = array_of(bench, sampled);
      const auto chosen =
          array_of(bench, std::vector<std::int32_t>(static_cast<std::size_t>(rows)));
      SamplerArguments arguments{};
      arguments.logits = static_cast<const float*>(logits->data());
      arguments.rows = static_cast<const SampleRow*>(list->data());
      arguments.chosen = static_cast<std::int32_t*>(chosen->data());
      arguments.vocab = vocab;
      const std::string name = std::string("sampler, ") + (is_greedy ? "greedy" : "top 50, 0.95") +
                               ", " + std::to_string(rows) + " rows";
      bench->kernel(name, {static_cast<double>(count) * 4},
                    [&](int) { launch_sample(arguments, rows, bench->stream().handle()); });
    }
  }
}

}  // namespace

void bench_kernels(Bench* bench) {
  const RowSizes size(bench->is_tiny());
  bench_rows(bench, size);
  bench_activation(bench, size);
  bench_store(bench, size);
  bench_sampler(bench);
}

void bench_products(Bench* bench) {
  struct Layer {
    const char* name;
    int out;
    int in;
  };
  const bool tiny = bench->is_tiny();
  const std::vector<Layer> layers =
      tiny ? std::vector<Layer>{{"tiny", 48, 32}}
           : std::vector<Layer>{{"qkv", 6144, 4096},          {"attention output", 4096, 4096},
                                {"gate and up", 28672, 4096}, {"down", 4096, 14336},
                                {"logits", 128256, 4096},     {"1B attention output", 2048, 2048},
                                {"0.5B qkv", 1152, 896},      {"0.5B down", 896, 4864}};
  CudaGemm gemm(&bench->stream());
  for (const Layer& layer : layers) {
    const double weights = static_cast<double>(layer.out) * layer.in;
    // So many matrices that none is found in the cache when its turn comes.
    const int copies = tiny ? 2 : std::clamp(static_cast<int>(4e8 / (2 * weights)), 1, 48);
    std::vector<std::unique_ptr<CudaMatrix>> matrices;
    const auto numbers = bench->numbers(static_cast<std::size_t>(weights), 2);
    for (int i = 0; i < copies; ++i) {
      matrices.push_back(std::make_unique<CudaMatrix>(layer.out, layer.in));
      bench->stream().copy_on_device(matrices.back()->weights.data(), numbers->data(),
                                     numbers->size_bytes());
    }
    for (const int rows : {1, 4, kMaxProductRows}) {
      const auto input = bench->numbers(static_cast<std::size_t>(rows) * layer.in, 2);
      const auto output = bench->numbers(static_cast<std::size_t>(rows) * layer.out, 2);
      const double bytes = 2 * (weights + static_cast<double>(rows) * (layer.in + layer.out));
      bench->kernel(
          "own product, " + std::string(layer.name) + ", " + std::to_string(rows) + " rows",
          {bytes, 2 * weights * rows},
          [&](int i) {
            const CudaMatrix& matrix = *matrices[static_cast<std::size_t>(i % copies)];
            launch_product({matrix.weights.data(), input->data(), nullptr, output->data(), rows,
                            layer.out, layer.in, false, false},
                           bench->stream().handle());
          },
          std::max(12, copies));
    }
    for (const int rows : {1, 16, 64, 512, 4096}) {
      if (tiny && rows > 16) continue;
      const auto input = bench->numbers(static_cast<std::size_t>(rows) * layer.in, 2);
      const auto output = bench->numbers(static_cast<std::size_t>(rows) * layer.out, 2);
      const double bytes = 2 * (weights + static_cast<double>(rows) * (layer.in + layer.out));
      bench->kernel(
          "product, " + std::string(layer.name) + ", " + std::to_string(rows) + " rows",
          {bytes, 2 * weights * rows, rows >= 4096 ? std::optional(0.9) : std::nullopt},
          [&](int i) {
            gemm.run({input->data(), DType::kBF16, rows, layer.in},
                     *matrices[static_cast<std::size_t>(i % copies)],
                     {output->data(), DType::kBF16, rows, layer.out}, false);
          },
          rows >= 512 ? 2 : std::max(12, copies));
    }
  }
}

}  // namespace batchmill::testing
