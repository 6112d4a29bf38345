// Times work on the first device and puts it beside what the device can do: bytes per second of a
// copy, floating point operations per second of a large matrix product. One thread.
#pragma once

#include <cstdint>
#include <cstdio>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "cuda/device_buffer.h"
#include "cuda/stream.h"

namespace batchmill::testing {

struct BenchOptions {
  bool tiny = false;  // sizes at which emulated threads are done in a moment: no figures, a test
  std::string filter;  // a part of the names
  std::string json_path;  // one line per measurement; empty: none
  double seconds_each = 0.03;
};

// What one call of the work moves and computes; 0: not of interest.
struct Cost {
  double bytes = 0;
  double operations = 0;
  std::optional<double> goal = {};  // share of the ceiling that is wanted
};

class Bench {
 public:
  explicit Bench(const BenchOptions& options);
  ~Bench();
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;

  bool is_tiny() const { return options_.tiny; }
  CudaStream& stream() { return stream_; }
  const std::string& filter() const { return options_.filter; }
  bool wants(const std::string& name) const;

  // Measures the ceilings; the shares of later reports are of them.
  void measure_ceilings();

  // `enqueue(i)` sends the work of call i, on other data than the calls before it so that nothing
  // is found in a cache. The calls are recorded and replayed, so that sending them takes no time.
  void kernel(const std::string& name, const Cost& cost, const std::function<void(int)>& enqueue,
              int num_recorded = 8);

  // `run` returns when its work is done.
  void step(const std::string& name, const Cost& cost, const std::function<void()>& run);

  // Memory filled with numbers of variance 1 ÷ 16, bf16 or f32.
  std::unique_ptr<CudaBuffer> numbers(std::size_t count, int element_bytes);

 private:
  double seconds_of(const std::function<void()>& run, int calls_of_run) const;
  void report(const std::string& name, const Cost& cost, double seconds);

  BenchOptions options_;
  CudaStream stream_;
  std::FILE* json_ = nullptr;
  double copy_rate_ = 0;  // bytes per second, read and written
  double product_rate_ = 0;  // operations per second
};

void bench_kernels(Bench* bench);
void bench_products(Bench* bench);
void bench_attention(Bench* bench);
void bench_steps(Bench* bench);

}  // namespace batchmill::testing
