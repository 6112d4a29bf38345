// Attention of one layer of an 8B Llama: decodes by the bytes they read, prefills by what they
// compute.
#include <cmath>
#include <cstring>
#include <memory>

#include "cuda/attention_kernels.h"
#include "engine/kv_cache.h"
#include "tests/cuda/bench/bench.h"

namespace batchmill::testing {
namespace {

constexpr int kBlockShift = 4;

struct Heads {
  int heads;
  int kv_heads;
  int dim;
  DType kv = DType::kBF16;
};

// Sequences of `context` tokens, the last `rows` of them this step's.
class AttentionCase {
 public:
  // The first `shared` tokens lie in the same blocks for all of them.
  AttentionCase(Bench* bench, const Heads& heads, int sequences, int context, int rows,
                int shared = 0)
      : bench_(*bench), heads_(heads) {
    std::vector<std::int32_t> cu_seqlens = {0};
    for (int s = 0; s < sequences; ++s) cu_seqlens.push_back(cu_seqlens.back() + rows);
    const std::vector<std::int32_t> contexts(static_cast<std::size_t>(sequences), context);
    const int table = (context + (1 << kBlockShift) - 1) >> kBlockShift;
    const int blocks = sequences * table;
    std::vector<std::int32_t> tables(static_cast<std::size_t>(blocks));
    for (int i = 0; i < blocks; ++i) {
      tables[static_cast<std::size_t>(i)] =
          static_cast<std::int32_t>(static_cast<long long>(i) * 7919 % blocks);
    }
    const int shared_blocks = shared >> kBlockShift;
    for (int s = 1; s < sequences; ++s) {
      std::copy_n(tables.begin(), shared_blocks, tables.begin() + s * table);
    }
    AttentionPlan plan;
    plan.make({cu_seqlens, contexts, heads.heads / heads.kv_heads, 0, true, tables, table,
               1 << kBlockShift, heads.kv_heads});
    std::vector<std::byte> packed(plan.packed_bytes());
    plan.pack(packed.data());
    plan_ = send(packed.data(), packed.size());
    tables_ = send(tables.data(), tables.size() * 4);
    const auto total_rows = static_cast<std::size_t>(sequences) * static_cast<std::size_t>(rows);
    const auto cols = static_cast<std::size_t>((heads.heads + 2 * heads.kv_heads) * heads.dim);
    qkv_ = bench->numbers(total_rows * cols, 2);
    output_ = std::make_unique<CudaBuffer>(total_rows * cols * 2);
    const auto element = static_cast<std::size_t>(dtype_bytes(heads.kv));
    const std::size_t block_bytes =
        static_cast<std::size_t>(2 * heads.kv_heads * kv_token_bytes(heads.dim, element))
        << kBlockShift;
    const int distinct = blocks - (sequences - 1) * shared_blocks;
    cache_bytes_ = static_cast<double>(distinct) * static_cast<double>(block_bytes);
    // So many caches that none is found in the processor's when its turn comes.
    const int caches = bench->is_tiny() ? 2 : std::max(1, std::min(16, int(4e8 / cache_bytes_)));
    for (int i = 0; i < caches; ++i) {
      caches_.push_back(bench->numbers(static_cast<std::size_t>(blocks) * block_bytes / 2, 2));
    }
    const auto partial_rows = static_cast<std::size_t>(plan.num_partial_rows() * heads.kv_heads);
    partial_outputs_ = std::make_unique<CudaBuffer>(4 * std::max<std::size_t>(partial_rows, 1) *
                                                    static_cast<std::size_t>(heads.dim));
    partial_sums_ = std::make_unique<CudaBuffer>(8 * std::max<std::size_t>(partial_rows, 1));

    arguments_.qkv = qkv_->data();
    arguments_.kv = heads.kv;
    arguments_.block_tables = static_cast<const std::int32_t*>(tables_->data());
    arguments_.output = output_->data();
    arguments_.plan = plan_->data();
    arguments_.partial_outputs = static_cast<float*>(partial_outputs_->data());
    arguments_.partial_sums = static_cast<float*>(partial_sums_->data());
    arguments_.table_stride = table;
    arguments_.block_shift = kBlockShift;
    arguments_.heads = heads.heads;
    arguments_.kv_heads = heads.kv_heads;
    arguments_.dim = heads.dim;
    arguments_.scale = 1.0f / std::sqrt(static_cast<float>(heads.dim));
    arguments_.causal = true;
    const DeviceFacts facts = device_facts(0);
    grid_ = attention_grid(plan, arguments_, {facts.multiprocessors, facts.shared_bytes}, false);
  }

  // Of blocks, each counted once.
  double cache_bytes() const { return cache_bytes_; }
  void enqueue(int call) {
    arguments_.cache = caches_[static_cast<std::size_t>(call) % caches_.size()]->data();
    launch_attention(arguments_, grid_, bench_.stream().handle());
  }

 private:
  std::unique_ptr<CudaBuffer> send(const void* data, std::size_t bytes) {
    auto buffer = std::make_unique<CudaBuffer>(bytes);
    PinnedBuffer staging(bytes);
    std::memcpy(staging.data(), data, bytes);
    bench_.stream().copy_to_device(buffer->data(), staging.data(), bytes);
    bench_.stream().synchronize();
    return buffer;
  }

  Bench& bench_;
  Heads heads_;
  AttentionArguments arguments_{};
  AttentionGrid grid_{};
  double cache_bytes_ = 0;
  std::unique_ptr<CudaBuffer> plan_, tables_, qkv_, output_, partial_outputs_, partial_sums_;
  std::vector<std::unique_ptr<CudaBuffer>> caches_;
};

void bench_cache(Bench* bench, DType kv) {
  const bool tiny = bench->is_tiny();
  const Heads heads = tiny ? Heads{4, 2, 32, kv} : Heads{32, 8, 128, kv};
  const std::string what =
      kv == DType::kBF16 ? "attention, " : std::string("attention on ") + dtype_name(kv) + ", ";
  struct Size {
    int sequences;
    int context;
    int shared = 0;
  };
  const std::vector<Size> decodes =
      tiny ? std::vector<Size>{{2, 40}, {1, 300}, {3, 300, 256}}
           : std::vector<Size>{{1, 1024},  {1, 16384}, {8, 4096},
                               {64, 1024}, {64, 4096}, {64, 4096, 3840}};
  for (const Size& size : decodes) {
    const std::string name =
        what + std::to_string(size.sequences) + " decodes at " + std::to_string(size.context) +
        (size.shared > 0 ? ", " + std::to_string(size.shared) + " shared" : "");
    if (!bench->wants(name)) continue;
    AttentionCase work(bench, heads, size.sequences, size.context, 1, size.shared);
    const bool is_large = work.cache_bytes() >= 64e6;
    bench->kernel(name, {work.cache_bytes(), 0, is_large ? std::optional(0.8) : std::nullopt},
                  [&](int i) { work.enqueue(i); });
  }
  const std::vector<Size> prefills =
      tiny ? std::vector<Size>{{1, 40}} : std::vector<Size>{{8, 512}, {4, 4096}, {1, 16384}};
  for (const Size& size : prefills) {
    const std::string name =
        what + std::to_string(size.sequences) + " prefills of " + std::to_string(size.context);
    if (!bench->wants(name)) continue;
    AttentionCase work(bench, heads, size.sequences, size.context, size.context);
    // Two products over half of all pairs of rows and keys.
    const double operations = 2.0 * size.sequences * heads.heads * heads.dim *
                              static_cast<double>(size.context) * size.context;
    bench->kernel(
        name, {0, operations}, [&](int i) { work.enqueue(i); }, 2);
  }
}

}  // namespace

void bench_attention(Bench* bench) {
  for (const DType kv : {DType::kBF16, DType::kI8, DType::kF8}) bench_cache(bench, kv);
}

}  // namespace batchmill::testing
