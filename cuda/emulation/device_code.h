// The functions that cuda/devrt_nvcc.h and CUDA itself offer to kernels, for g++. Included by
// cuda/devrt.h alone.
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>

#include "cuda/bf16.h"
#include "cuda/emulation/block_runner.h"
#include "cuda/emulation/tensor_core.h"

#define SHARED_ARRAY(T, name, count)                                                            \
  auto& name = *[] {                                                                            \
    static const char tag = 0;                                                                  \
    return static_cast<T(*)[count]>(                                                            \
        batchmill::emulation::shared_array(&tag, sizeof(T) * static_cast<std::size_t>(count))); \
  }()
#define DYNAMIC_SHARED(T, name) T* name = static_cast<T*>(batchmill::emulation::dynamic_shared())

inline void __syncthreads(BATCHMILL_SITE) { batchmill::emulation::synchronize_block(site); }
inline void __syncwarp(BATCHMILL_SITE) { batchmill::emulation::synchronize_warp(site); }

namespace batchmill::emulation {

template <typename T>
struct Exchange {
  T value;
  unsigned source;
  T result;
};
template <typename T>
BATCHMILL_HARDWARE void exchange(void* const* records) {
  for (int i = 0; i < kWarpLanes; ++i) {
    auto* record = static_cast<Exchange<T>*>(records[i]);
    record->result = static_cast<const Exchange<T>*>(records[record->source])->value;
  }
}
template <typename T>
BATCHMILL_HARDWARE T exchange_with(T value, unsigned source, Site site) {
  Exchange<T> record{value, source % kWarpLanes, value};
  run_warp_operation(&record, exchange<T>, site);
  return record.result;
}

struct Vote {
  bool vote;
  unsigned result;
};
BATCHMILL_HARDWARE inline void collect_votes(void* const* records) {
  unsigned votes = 0;
  for (int i = 0; i < kWarpLanes; ++i) {
    votes |= unsigned{static_cast<const Vote*>(records[i])->vote} << i;
  }
  for (int i = 0; i < kWarpLanes; ++i) static_cast<Vote*>(records[i])->result = votes;
}
BATCHMILL_HARDWARE inline unsigned ballot(bool vote, Site site) {
  Vote record{vote, 0};
  run_warp_operation(&record, collect_votes, site);
  return record.result;
}

inline void check_mask(unsigned mask, Site site) {
  if (mask != ~0u) fail("a collective of a part of the warp", site);
}

}  // namespace batchmill::emulation

template <typename T>
T __shfl_sync(unsigned mask, T value, int source, BATCHMILL_SITE) {
  batchmill::emulation::check_mask(mask, site);
  return batchmill::emulation::exchange_with(value, static_cast<unsigned>(source), site);
}
template <typename T>
T __shfl_xor_sync(unsigned mask, T value, int distance, BATCHMILL_SITE) {
  batchmill::emulation::check_mask(mask, site);
  const unsigned lane = batchmill::emulation::lane_of_warp();
  return batchmill::emulation::exchange_with(value, lane ^ static_cast<unsigned>(distance), site);
}
template <typename T>
T __shfl_up_sync(unsigned mask, T value, unsigned distance, BATCHMILL_SITE) {
  batchmill::emulation::check_mask(mask, site);
  const unsigned lane = batchmill::emulation::lane_of_warp();
  return batchmill::emulation::exchange_with(value, lane >= distance ? lane - distance : lane,
                                             site);
}
inline unsigned __ballot_sync(unsigned mask, int vote, BATCHMILL_SITE) {
  batchmill::emulation::check_mask(mask, site);
  return batchmill::emulation::ballot(vote != 0, site);
}

// Atomics order nothing but themselves, as on the device.
template <typename T>
T atomicAdd(T* address, T value) {
  return std::atomic_ref<T>(*address).fetch_add(value, std::memory_order_relaxed);
}
template <typename T>
T atomicMax(T* address, T value) {
  std::atomic_ref<T> target(*address);
  T old = target.load(std::memory_order_relaxed);
  while (old < value && !target.compare_exchange_weak(old, value, std::memory_order_relaxed)) {
  }
  return old;
}
template <typename T>
T atomicOr(T* address, T value) {
  return std::atomic_ref<T>(*address).fetch_or(value, std::memory_order_relaxed);
}

using std::max;
using std::min;
inline float rsqrtf(float x) { return 1.0f / std::sqrt(x); }
inline float cospif(float x) { return static_cast<float>(std::cos(3.14159265358979323846 * x)); }
inline float sinpif(float x) { return static_cast<float>(std::sin(3.14159265358979323846 * x)); }
inline float __uint_as_float(unsigned bits) { return std::bit_cast<float>(bits); }
inline unsigned __float_as_uint(float value) { return std::bit_cast<unsigned>(value); }
inline unsigned __umulhi(unsigned a, unsigned b) {
  return static_cast<unsigned>((std::uint64_t{a} * b) >> 32);
}
inline int __ffs(int x) { return x == 0 ? 0 : std::countr_zero(static_cast<unsigned>(x)) + 1; }

namespace batchmill {

inline int add_in_order(int* address, int value) {
  return std::atomic_ref<int>(*address).fetch_add(value, std::memory_order_acq_rel);
}
inline float fast_exp2(float x) { return std::exp2(x); }
// Rounded on their own, never fused.
inline float multiply_rounded(float a, float b) { return a * b; }
inline float add_rounded(float a, float b) { return a + b; }
inline float fast_divide(float a, float b) { return a / b; }

// To the nearest, ties to even; a in the low half.
inline unsigned pack_bf16(float a, float b) {
  return unsigned{bf16_of(a)} | unsigned{bf16_of(b)} << 16;
}

// Of two pairs of bf16, a × b + c, rounded once; numbers that are not normal count.
inline unsigned multiply_add_bf16(unsigned a, unsigned b, unsigned c) {
  const auto half = [](unsigned x, unsigned y, unsigned z) {
    const auto value = [](unsigned bits) { return double{std::bit_cast<float>(bits << 16)}; };
    const double exact = value(x) * value(y) + value(z);
    auto result = static_cast<float>(exact);
    if (result == exact || std::isnan(result)) return result;
    // Towards zero, and odd: what is cut off is not forgotten when this is rounded.
    if (std::abs(double{result}) > std::abs(exact)) result = std::nextafter(result, 0.0f);
    return std::bit_cast<float>(std::bit_cast<unsigned>(result) | 1u);
  };
  return pack_bf16(half(a & 0xFFFFu, b & 0xFFFFu, c & 0xFFFFu), half(a >> 16, b >> 16, c >> 16));
}

// Of weights, which no kernel writes.
inline uint4 load_once16(const void* address, BATCHMILL_SITE) {
  emulation::check_alignment(address, 16, site);
  return *static_cast<const uint4*>(address);
}
inline uint4 load16(const void* address, BATCHMILL_SITE) {
  emulation::check_waited(site);
  return load_once16(address, site);
}
inline void store16(void* address, uint4 value, BATCHMILL_SITE) {
  emulation::check_waited(site);
  emulation::check_alignment(address, 16, site);
  *static_cast<uint4*>(address) = value;
}

inline void wait_for_previous_kernel() { emulation::count_wait(); }
inline void let_next_kernel_begin() {}

}  // namespace batchmill
