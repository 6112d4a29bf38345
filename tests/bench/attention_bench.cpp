// Attention of one layer on its own, beside what the machine can do in the same run:
// engine_attention_bench [KV bf16|int8] [threads] [rounds] [WORD]. Heads as in SmolLM2-135M: 9 over
// 3 kv heads of 64. With WORD only the workloads whose names contain it.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "engine/cpu/cpu_backend.h"
#include "engine/cpu/cpu_memory.h"
#include "engine/cpu/speed_probe.h"
#include "engine/dequantize.h"

namespace batchmill {
namespace {

constexpr HeadShape kHeads{9, 3, 64};
constexpr std::int32_t kBlockSize = 32;
constexpr std::int32_t kLayers = 4;  // used in turn, so that no cache keeps one for the next run
constexpr std::int32_t kPoolBlocks = 64 * 29;

template <typename Work>
double seconds_of(const Work& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// `count` sequences of `context` tokens, the last `rows` of them queries, the first `shared` the
// same for all.
struct Workload {
  const char* name;
  std::int32_t count;
  std::int32_t context;
  std::int32_t rows;
  std::int32_t shared;
};

constexpr Workload kWorkloads[] = {
    {"prefill 1 x 512", 1, 512, 512, 0},
    {"prefill 4 x 512", 4, 512, 512, 0},
    {"prefill 1 x 900", 1, 900, 900, 0},
    {"prefill 512 behind 1,000", 1, 1512, 512, 0},
    {"prefill 4 x 400 behind 500 shared", 4, 900, 400, 480},
    {"decode 1 behind 900", 1, 900, 1, 0},
    {"decode 1 behind 8,000", 1, 8000, 1, 0},
    {"decode 64 behind 900", 64, 900, 1, 0},
    {"decode 64 behind 900, 500 shared", 64, 900, 1, 480},
};

// Blocks in random order.
Batch make_batch(const Workload& work) {
  std::mt19937 random(11);
  std::vector<BlockId> free_blocks;
  for (BlockId b = 0; b < kPoolBlocks; ++b) free_blocks.push_back(b);
  std::shuffle(free_blocks.begin(), free_blocks.end(), random);
  Batch batch;
  batch.cu_seqlens.push_back(0);
  batch.max_blocks = (work.context + kBlockSize - 1) / kBlockSize;
  for (std::int32_t s = 0; s < work.count; ++s) {
    for (std::int32_t b = 0; b < batch.max_blocks; ++b) {
      if (s > 0 && b < work.shared / kBlockSize) {
        batch.block_tables.push_back(batch.block_tables[static_cast<std::size_t>(b)]);
        continue;
      }
      batch.block_tables.push_back(free_blocks.back());
      free_blocks.pop_back();
    }
    const std::size_t table = static_cast<std::size_t>(s * batch.max_blocks);
    for (std::int32_t p = work.context - work.rows; p < work.context; ++p) {
      batch.token_ids.push_back(0);
      batch.positions.push_back(p);
      batch.slot_mapping.push_back(
          batch.block_tables[table + static_cast<std::size_t>(p / kBlockSize)] * kBlockSize +
          p % kBlockSize);
    }
    batch.cu_seqlens.push_back(batch.num_tokens());
    batch.context_lens.push_back(work.context);
  }
  return batch;
}

// Random heads [rows, qkv_cols] bf16.
std::vector<std::uint16_t> random_heads(std::int32_t rows) {
  std::mt19937 random(5);
  std::normal_distribution<float> normal;
  std::vector<std::uint16_t> heads(static_cast<std::size_t>(rows) *
                                   static_cast<std::size_t>(kHeads.qkv_cols()));
  for (std::uint16_t& value : heads) value = bfloat16_from_float(normal(random));
  return heads;
}

// Stores keys and values in all slots of all layers.
void fill_cache(CpuBackend* backend, const KvCache& cache) {
  Batch batch;
  for (std::int32_t i = 0; i < kPoolBlocks * kBlockSize; ++i) {
    batch.token_ids.push_back(0);
    batch.positions.push_back(i);
    batch.slot_mapping.push_back(i);
  }
  auto heads = random_heads(batch.num_tokens());
  for (std::int32_t layer = 0; layer < kLayers; ++layer) {
    backend->begin_step(batch, kHeads);
    backend->rotate_and_store({heads.data(), DType::kBF16, batch.num_tokens(), kHeads.qkv_cols()},
                              {}, {}, cache, layer);
  }
}

void measure(const Workload& work, CpuBackend* backend, const KvCache& cache, int rounds) {
  const Batch batch = make_batch(work);
  const std::int32_t rows = batch.num_tokens();
  auto heads = random_heads(rows);
  std::vector<std::uint16_t> output(static_cast<std::size_t>(rows) * kHeads.num_heads *
                                    kHeads.head_dim);
  const Tensor qkv{heads.data(), DType::kBF16, rows, kHeads.qkv_cols()};
  const Tensor attended{output.data(), DType::kBF16, rows, kHeads.num_heads * kHeads.head_dim};
  backend->begin_step(batch, kHeads);
  double attend_s = 1e9;
  double store_s = 1e9;
  for (int i = 0; i < rounds * kLayers; ++i) {
    const int layer = i % kLayers;
    store_s = std::min(store_s,
                       seconds_of([&] { backend->rotate_and_store(qkv, {}, {}, cache, layer); }));
    attend_s = std::min(attend_s, seconds_of([&] {
                          backend->attention(qkv, cache, layer, {.scale = 0.125f}, attended);
                        }));
  }
  double pairs = 0;  // of a query token and a key
  for (const std::int32_t position : batch.positions) pairs += position + 1;
  const double operations = 4.0 * pairs * kHeads.num_heads * kHeads.head_dim;
  const double shared = work.shared / kBlockSize * kBlockSize;
  const double tokens = shared + work.count * (work.context - shared);  // cached ones
  const double bytes = tokens * static_cast<double>(cache.shape().layer_block_bytes()) / kBlockSize;
  std::printf("%-36s %9.1f us %8.1f GOP/s %7.2f GB/s, storing %7.1f us\n", work.name,
              attend_s * 1e6, operations / attend_s / 1e9, bytes / attend_s / 1e9, store_s * 1e6);
  std::fflush(stdout);
}

int run(int argc, char** argv) {
  const bool bytes = argc > 1 && std::string(argv[1]) == "int8";
  const std::int32_t threads = argc > 2 ? std::atoi(argv[2]) : available_threads();
  const int rounds = argc > 3 ? std::atoi(argv[3]) : 10;
  const std::string word = argc > 4 ? argv[4] : "";
  for (const DType dtype : {DType::kBF16, DType::kI8}) {
    GemmProbe gemm(dtype, threads);
    double best = 1e9;
    for (int i = 0; i < 4; ++i) best = std::min(best, seconds_of([&] { gemm.run(); }));
    std::printf("peak %s %.1f GOP/s, ", dtype_name(dtype), gemm.operations() / best / 1e9);
  }
  ReadProbe read(threads);
  double best = 1e9;
  for (int i = 0; i < 4; ++i) best = std::min(best, seconds_of([&] { read.run(); }));
  std::printf("reading %.2f GB/s\n", read.bytes() / best / 1e9);
  CpuBackend backend(DType::kBF16, threads);
  const auto cache = backend.make_kv_cache({kLayers, kPoolBlocks, kBlockSize, kHeads.num_kv_heads,
                                            kHeads.head_dim, bytes ? DType::kI8 : DType::kBF16});
  fill_cache(&backend, *cache);
  for (const Workload& work : kWorkloads) {
    if (std::string(work.name).find(word) == std::string::npos) continue;
    measure(work, &backend, *cache, rounds);
  }
  return 0;
}

}  // namespace
}  // namespace batchmill

int main(int argc, char** argv) { return batchmill::run(argc, argv); }
