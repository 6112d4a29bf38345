// How fast this machine can be at best, measured.
#include <omp.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <stdexcept>

#include "engine/cpu/cpu_memory.h"
#include "engine/cpu/cpu_runner.h"
#include "engine/cpu/gemm.h"
#include "engine/dequantize.h"

namespace batchmill {
namespace {

constexpr int kRounds = 7;

double seconds_of(const auto& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

double best_seconds_of(const auto& work) {
  work();
  double best = seconds_of(work);
  for (int i = 1; i < kRounds; ++i) best = std::min(best, seconds_of(work));
  return best;
}

}  // namespace

double measure_gemm_peak(DType dtype, std::int32_t threads) {
  constexpr std::int32_t kSize = 2048;
  omp_set_num_threads(threads);
  Gemm gemm(dtype);
  // Small integers: their products and sums are exact in both types.
  const auto matrix = gemm.pack(kSize, kSize, [](std::int64_t row, float* output) {
    for (std::int32_t i = 0; i < kSize; ++i) output[i] = static_cast<float>((row + i) % 3 - 1);
  });
  const std::size_t elements = std::size_t{kSize} * kSize;
  const auto input = allocate_cpu_buffer(elements * static_cast<std::size_t>(dtype_bytes(dtype)));
  const auto output = allocate_cpu_buffer(elements * sizeof(float));
  const auto fill = [&](auto* data, auto one) { std::fill_n(data, elements, one); };
  if (dtype == DType::kF32) {
    fill(static_cast<float*>(input->data()), 1.0f);
  } else {
    fill(static_cast<std::uint16_t*>(input->data()), bfloat16_from_float(1.0f));
  }
  const Tensor a{input->data(), dtype, kSize, kSize};
  const Tensor c{output->data(), DType::kF32, kSize, kSize};
  const double seconds = best_seconds_of([&] { gemm.run(a, *matrix, c, false); });
  for (std::int32_t row = 0; row < kSize; row += 511) {
    for (std::int32_t col = 0; col < kSize; col += 7) {
      float sum = 0;
      for (std::int32_t i = 0; i < kSize; ++i) sum += static_cast<float>((col + i) % 3 - 1);
      if (c.row<float>(row)[col] != sum) {
        throw std::runtime_error("the matrix product gives wrong results on this processor");
      }
    }
  }
  return 2.0 * kSize * kSize * kSize / seconds;
}

double measure_read_bandwidth(std::int32_t threads) {
  constexpr std::size_t kBytes = std::size_t{512} << 20;
  const auto buffer = allocate_cpu_buffer(kBytes);
  auto* words = static_cast<std::uint64_t*>(buffer->data());
  constexpr auto kWords = static_cast<std::int64_t>(kBytes / sizeof(std::uint64_t));
#pragma omp parallel for schedule(static) num_threads(threads)
  for (std::int64_t i = 0; i < kWords; ++i) words[i] = 1;
  std::uint64_t sum = 0;
  const double seconds = best_seconds_of([&] {
    std::uint64_t total = 0;
#pragma omp parallel for schedule(static) num_threads(threads) reduction(+ : total)
    for (std::int64_t i = 0; i < kWords; ++i) total += words[i];
    sum = total;
  });
  if (sum != static_cast<std::uint64_t>(kWords))
    throw std::runtime_error("memory reads back wrong");
  return static_cast<double>(kBytes) / seconds;
}

}  // namespace batchmill
