// Prefill and decode rates of one model on the CPU beside what the machine can do, measured in the
// same run: cpu_speed MODEL [f32|bf16|int8] [threads] [rounds] [KV]. One JSON line per workload;
// operations on stderr.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <numeric>
#include <random>
#include <string>

#include "engine/cpu/cpu_backend.h"
#include "engine/cpu/cpu_memory.h"
#include "engine/cpu/speed_probe.h"
#include "engine/model_files.h"
#include "engine/transformer.h"
#include "tests/engine/timed_backend.h"
#include "tests/engine/work_clock.h"

namespace batchmill {
namespace {

using Seconds = std::map<std::string, double>;

testing::WorkClock work_clock;

double seconds_of(const std::function<void()>& work) {
  const double begin_s = work_clock.now_s();
  work();
  return work_clock.now_s() - begin_s;
}

// `num_seqs` sequences of `context` tokens of which the last `rows` are computed; blocks in order.
Batch make_batch(std::int32_t num_seqs, std::int32_t context, std::int32_t rows,
                 std::int32_t block_size, std::int32_t vocab) {
  std::mt19937 random(11);
  Batch batch;
  batch.cu_seqlens.push_back(0);
  batch.max_blocks = (context + block_size - 1) / block_size;
  for (std::int32_t s = 0; s < num_seqs; ++s) {
    for (std::int32_t b = 0; b < batch.max_blocks; ++b) {
      batch.block_tables.push_back(s * batch.max_blocks + b);
    }
    for (std::int32_t p = context - rows; p < context; ++p) {
      batch.token_ids.push_back(static_cast<TokenId>(random() % static_cast<unsigned>(vocab)));
      batch.positions.push_back(p);
      batch.slot_mapping.push_back(s * batch.max_blocks * block_size + p);
    }
    batch.cu_seqlens.push_back(batch.num_tokens());
    batch.context_lens.push_back(context);
    batch.logits_rows.push_back(batch.num_tokens() - 1);
  }
  return batch;
}

// Operations of the matrix products of one row, without the vocabulary.
double row_operations(const ModelConfig& c) {
  const double q = c.num_heads * c.head_dim;
  const double kv = c.num_kv_heads * c.head_dim;
  return 2.0 * c.num_layers * c.hidden_size * (2 * q + 2 * kv + 3.0 * c.intermediate_size);
}

void measure(const char* name, Transformer* model, const ModelConfig& config, const Batch& batch,
             int weight_bytes, int kv_bytes, int rounds, GemmProbe* gemm, ReadProbe* read,
             Seconds* operations) {
  std::vector<float> logits(batch.logits_rows.size() * static_cast<std::size_t>(config.vocab_size));
  double best = 1e9;
  double peak = 1e9;
  double bandwidth = 1e9;
  Seconds best_operations;
  model->forward(batch, logits);
  for (int i = 0; i < rounds; ++i) {
    operations->clear();
    const double seconds = seconds_of([&] { model->forward(batch, logits); });
    if (seconds < best) best_operations = *operations;
    best = std::min(best, seconds);
    peak = std::min(peak, seconds_of([&] { gemm->run(); }));
    bandwidth = std::min(bandwidth, seconds_of([&] { read->run(); }));
  }
  const double rows = batch.num_tokens();
  // Behind its keys and values, the last layer has only the rows with logits.
  const auto logits_rows = static_cast<double>(batch.logits_rows.size());
  const double layers = config.num_layers - 1;
  double pairs = 0;  // of query and key that attention multiplies
  for (const std::int32_t position : batch.positions) pairs += layers * (position + 1);
  for (const std::int32_t row : batch.logits_rows) {
    pairs += batch.positions[static_cast<std::size_t>(row)] + 1;
  }
  const double attention = 4.0 * pairs * config.num_heads * config.head_dim;
  const double skipped = (rows - logits_rows) * 2.0 * config.hidden_size *
                         (config.num_heads * config.head_dim + 3.0 * config.intermediate_size);
  const double vocabulary = 2.0 * config.hidden_size * config.vocab_size * logits_rows;
  const double flops = rows * row_operations(config) - skipped + attention + vocabulary;
  double kv_tokens = 0;
  for (const std::int32_t length : batch.context_lens) kv_tokens += length;
  const double bytes =
      (row_operations(config) / 2 + 1.0 * config.hidden_size * config.vocab_size) * weight_bytes +
      kv_tokens * static_cast<double>(config.kv_bytes_per_token(kv_bytes));
  std::printf(
      "{\"workload\": \"%s\", \"rows\": %.0f, \"step_ms\": %.2f, \"tokens_per_s\": %.1f, "
      "\"gflops\": %.1f, \"gemm_peak_gflops\": %.1f, \"share_of_peak\": %.3f, "
      "\"gb_per_s\": %.2f, \"read_gb_per_s\": %.2f, \"share_of_bandwidth\": %.3f}\n",
      name, rows, best * 1e3, rows / best, flops / best / 1e9, gemm->operations() / peak / 1e9,
      flops / best / (gemm->operations() / peak), bytes / best / 1e9,
      read->bytes() / bandwidth / 1e9, bytes / best / (read->bytes() / bandwidth));
  std::fflush(stdout);
  for (const auto& [operation, seconds] : best_operations) {
    std::fprintf(stderr, "  %-24s %8.3f ms\n", operation.c_str(), seconds * 1e3);
  }
  std::fprintf(stderr, "  attention at %.1f GFLOP/s\n",
               attention / best_operations["attention"] / 1e9);
}

int run(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: %s MODEL [f32|bf16|int8] [threads] [rounds] [KV]\n", argv[0]);
    return 2;
  }
  const auto parse = [](const std::string& type) {
    return type == "f32" ? DType::kF32 : type == "int8" ? DType::kI8 : DType::kBF16;
  };
  const DType dtype = parse(argc > 2 ? argv[2] : "bf16");
  const std::int32_t threads = argc > 3 ? std::atoi(argv[3]) : available_threads();
  const int rounds = argc > 4 ? std::atoi(argv[4]) : 5;
  work_clock.thread_time = threads == 1;
  const ModelFiles files = read_gguf_model(argv[1]);
  const ModelConfig& config = files.config;
  Seconds operations;
  auto cpu = std::make_unique<CpuBackend>(dtype, threads);
  const CpuBackend& cpu_backend = *cpu;
  auto backend = std::make_unique<testing::TimedBackend>(std::move(cpu), work_clock, &operations);
  Weights weights = load_weights(*files.tensors, config, backend.get());
  constexpr std::int32_t kBlockSize = 32;
  auto cache = backend->make_kv_cache({config.num_layers, 64 * 30, kBlockSize, config.num_kv_heads,
                                       config.head_dim,
                                       argc > 5 ? parse(argv[5]) : backend->activation_dtype()});
  const int kv_bytes = dtype_bytes(cache->shape().dtype);
  // Any finite values: what attention takes does not depend on them.
  std::memset(cache->layer(0), 0x3c, cache->shape().bytes());
  Transformer model(config, std::move(backend), std::move(weights), std::move(cache));
  GemmProbe gemm(dtype, threads);
  ReadProbe read(threads);
  gemm.run();
  if (!gemm.result_is_right()) {
    std::fprintf(stderr, "the matrix product is wrong on this processor\n");
    return 1;
  }
  const auto batch = [&](std::int32_t seqs, std::int32_t context, std::int32_t rows) {
    return make_batch(seqs, context, rows, kBlockSize, config.vocab_size);
  };
  const auto step = [&](const char* name, const Batch& work, int times) {
    measure(name, &model, config, work, dtype_bytes(dtype), kv_bytes, times, &gemm, &read,
            &operations);
  };
  step("prefill 1x900", batch(1, 900, 900), rounds);
  step("prefill 2x900", batch(2, 900, 900), rounds);
  step("decode 1", batch(1, 900, 1), rounds * 4);
  step("decode 64", batch(64, 900, 1), rounds);
  Batch family = batch(64, 900, 1);
  for (std::int32_t i = family.max_blocks; i < 64 * family.max_blocks; ++i) {
    const std::int32_t in_sequence = i % family.max_blocks;
    if (in_sequence < 512 / kBlockSize)
      family.block_tables[static_cast<std::size_t>(i)] = in_sequence;
  }
  step("decode 64, 512 shared", family, rounds);
  for (const std::string& line : cpu_backend.gemm_implementations()) {
    std::fprintf(stderr, "%s\n", line.c_str());
  }
  return 0;
}

}  // namespace
}  // namespace batchmill

int main(int argc, char** argv) {
  try {
    return batchmill::run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
