#include "tests/cuda/bench/bench.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <random>

#include "cuda/gemm.h"

namespace batchmill::testing {
namespace {

constexpr int kBatches = 3;  // the best one counts

double now_seconds() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double>(now).count();
}

}  // namespace

Bench::Bench(const BenchOptions& options) : options_(options), stream_(0) {
  if (options_.json_path.empty()) return;
  json_ = std::fopen(options_.json_path.c_str(), "w");
  if (json_ == nullptr) throw std::runtime_error("cannot write " + options_.json_path);
}

Bench::~Bench() {
  if (json_ != nullptr) std::fclose(json_);
}

bool Bench::wants(const std::string& name) const {
  return name.find(options_.filter) != std::string::npos;
}

std::unique_ptr<CudaBuffer> Bench::numbers(std::size_t count, int element_bytes) {
  constexpr std::size_t kPatternBytes = 8 << 20;
  const std::size_t bytes = count * static_cast<std::size_t>(element_bytes);
  auto buffer = std::make_unique<CudaBuffer>(bytes);
  PinnedBuffer pattern(std::min(bytes, kPatternBytes));
  std::mt19937 random(11);
  std::normal_distribution<float> normal(0.0f, 0.25f);
  for (std::size_t i = 0; i + 4 <= pattern.size_bytes();
       i += static_cast<std::size_t>(element_bytes)) {
    const float value = normal(random);
    const auto* bits = reinterpret_cast<const std::byte*>(&value);
    std::memcpy(pattern.data() + i, bits + 4 - element_bytes,
                static_cast<std::size_t>(element_bytes));
  }
  for (std::size_t done = 0; done < bytes; done += pattern.size_bytes()) {
    stream_.copy_to_device(static_cast<std::byte*>(buffer->data()) + done, pattern.data(),
                           std::min(pattern.size_bytes(), bytes - done));
  }
  stream_.synchronize();
  return buffer;
}

double Bench::seconds_of(const std::function<void()>& run, int calls_of_run) const {
  run();  // algorithms are chosen, caches filled, clocks raised
  double begin = now_seconds();
  run();
  const double once = std::max(now_seconds() - begin, 1e-7);
  const int repetitions =
      options_.tiny ? 1 : static_cast<int>(std::clamp(options_.seconds_each / once, 1.0, 1000.0));
  double best = 1e30;
  for (int batch = 0; batch < (options_.tiny ? 1 : kBatches); ++batch) {
    begin = now_seconds();
    for (int i = 0; i < repetitions; ++i) run();
    best = std::min(best, (now_seconds() - begin) / repetitions);
  }
  return best / calls_of_run;
}

void Bench::kernel(const std::string& name, const Cost& cost,
                   const std::function<void(int)>& enqueue, int num_recorded) {
  if (!wants(name)) return;
  enqueue(0);  // without recording: algorithms are chosen
  stream_.synchronize();
  stream_.begin_capture();
  for (int i = 0; i < num_recorded; ++i) enqueue(i);
  const std::unique_ptr<CudaGraph> graph = stream_.end_capture();
  const int launches = options_.tiny ? 1 : 4;
  const auto run = [&] {
    for (int i = 0; i < launches; ++i) stream_.launch(*graph);
    stream_.synchronize();
  };
  report(name, cost, seconds_of(run, launches * num_recorded));
}

void Bench::step(const std::string& name, const Cost& cost, const std::function<void()>& run) {
  if (wants(name)) report(name, cost, seconds_of(run, 1));
}

void Bench::report(const std::string& name, const Cost& cost, double seconds) {
  const double rate = cost.bytes / seconds;
  const double speed = cost.operations / seconds;
  // The ceiling that is nearer.
  const double share = std::max(copy_rate_ > 0 ? rate / copy_rate_ : 0.0,
                                product_rate_ > 0 ? speed / product_rate_ : 0.0);
  std::printf("%-44s %10.1f us", name.c_str(), seconds * 1e6);
  cost.bytes > 0 ? std::printf(" %8.1f GB/s", rate * 1e-9) : std::printf("%14s", "");
  cost.operations > 0 ? std::printf(" %8.1f TFLOP/s", speed * 1e-12) : std::printf("%17s", "");
  if (share > 0) std::printf("  %3.0f %%", share * 100);
  if (cost.goal) std::printf(" of %2.0f %%", *cost.goal * 100);
  std::printf("\n");
  std::fflush(stdout);
  if (json_ == nullptr) return;
  std::fprintf(json_,
               "{\"name\": \"%s\", \"seconds\": %.4g, \"bytes_per_s\": %.4g, "
               "\"operations_per_s\": %.4g, \"share\": %.4f, \"goal\": %.2f}\n",
               name.c_str(), seconds, rate, speed, share, cost.goal.value_or(0.0));
  std::fflush(json_);
}

void Bench::measure_ceilings() {
  const std::size_t bytes = is_tiny() ? 4096 : std::size_t{2} << 30;
  {
    CudaBuffer source(bytes);
    CudaBuffer target(bytes);
    stream_.fill(source.data(), 1, bytes);
    const auto run = [&] {
      for (int i = 0; i < 4; ++i) stream_.copy_on_device(target.data(), source.data(), bytes);
      stream_.synchronize();
    };
    const double seconds = seconds_of(run, 4);
    copy_rate_ = 2.0 * static_cast<double>(bytes) / seconds;
    report("ceiling: copy", {2.0 * static_cast<double>(bytes)}, seconds);
  }
  const std::int32_t size = is_tiny() ? 32 : 8192;
  const auto count = static_cast<std::size_t>(size) * static_cast<std::size_t>(size);
  CudaGemm gemm(&stream_);
  CudaMatrix weight(size, size);
  const auto input = numbers(count, 2);
  const auto output = numbers(count, 2);
  stream_.copy_on_device(weight.weights.data(), input->data(), count * 2);
  const auto run = [&] {
    gemm.run({input->data(), DType::kBF16, size, size}, weight,
             {output->data(), DType::kBF16, size, size}, false);
    stream_.synchronize();
  };
  const double operations = 2.0 * size * static_cast<double>(count);
  const double seconds = seconds_of(run, 1);
  product_rate_ = operations / seconds;
  report("ceiling: bf16 product", {0, operations}, seconds);
}

}  // namespace batchmill::testing
