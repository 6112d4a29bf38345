// Searches over one row of logits by the threads of one block: where a running sum of whole numbers
// exceeds a target, in the order of values or of tokens. No sorting: values are narrowed down eight
// bits at a time. Of sampler_kernels.cu alone.
#pragma once

#include "cuda/devrt.h"

namespace batchmill {

using Mass = unsigned long long;

inline constexpr int kSampleThreads = 512;
inline constexpr int kSegmentTokens = 1024;
inline constexpr int kMaxSegments = 512;

// Keys order as floats do; both zeros are one.
__device__ __forceinline__ unsigned key_of(float value) {
  const unsigned bits = value == 0.0f ? 0u : __float_as_uint(value);
  return bits ^ ((bits >> 31) != 0 ? 0xFFFFFFFFu : 0x80000000u);
}
__device__ __forceinline__ float value_of(unsigned key) {
  return __uint_as_float(key ^ ((key >> 31) != 0 ? 0x80000000u : 0xFFFFFFFFu));
}

struct SearchMemory {  // shared
  Mass sums[kMaxSegments];
  Mass above;
  unsigned prefix;
  int index;
};

// The value at which, from the largest value down, the running sum exceeds the target.
struct ValuePlace {
  unsigned key;
  Mass above;  // sum over the larger values
};

class RowSearch {
 public:
  __device__ RowSearch(const float* row, int count, SearchMemory* memory)
      : row_(row), count_(count), memory_(*memory) {}

  // mass(token, key): 0 for tokens that do not take part.
  template <typename MassOf>
  __device__ Mass total(const MassOf& mass) {
    const int thread = static_cast<int>(threadIdx.x);
    if (thread == 0) memory_.above = 0;
    __syncthreads();
    Mass sum = 0;
    for (int i = thread; i < count_; i += kSampleThreads) sum += mass(i, key_of(row_[i]));
    sum = warp_total(sum);
    if (thread % 32 == 0) atomicAdd(&memory_.above, sum);
    __syncthreads();
    const Mass result = memory_.above;
    __syncthreads();
    return result;
  }

  // target < total(mass)
  template <typename MassOf>
  __device__ ValuePlace by_value(const MassOf& mass, Mass target) {
    const int thread = static_cast<int>(threadIdx.x);
    ValuePlace place{0, 0};
    for (int shift = 24; shift >= 0; shift -= 8) {
      if (thread < 256) memory_.sums[thread] = 0;
      __syncthreads();
      for (int i = thread; i < count_; i += kSampleThreads) {
        const unsigned key = key_of(row_[i]);
        if (shift < 24 && key >> (shift + 8) != place.key) continue;
        const Mass own = mass(i, key);
        if (own != 0) atomicAdd(&memory_.sums[key >> shift & 255u], own);
      }
      __syncthreads();
      if (thread == 0) {
        Mass sum = place.above;
        unsigned digit = 255;
        while (digit > 0 && sum + memory_.sums[digit] <= target) sum += memory_.sums[digit--];
        memory_.above = sum;
        memory_.prefix = place.key << 8 | digit;
      }
      __syncthreads();
      place = {memory_.prefix, memory_.above};
      __syncthreads();
    }
    return place;
  }

  // The token at which, in ascending order of tokens, the running sum exceeds the target.
  // target < total(mass)
  template <typename MassOf>
  __device__ int by_token(const MassOf& mass, Mass target) {
    const int thread = static_cast<int>(threadIdx.x);
    const int lane = thread % 32;
    const int segments = (count_ + kSegmentTokens - 1) / kSegmentTokens;
    for (int s = thread / 32; s < segments; s += kSampleThreads / 32) {
      const int end = min(count_, (s + 1) * kSegmentTokens);
      Mass sum = 0;
      for (int i = s * kSegmentTokens + lane; i < end; i += 32) sum += mass(i, key_of(row_[i]));
      sum = warp_total(sum);
      if (lane == 0) memory_.sums[s] = sum;
    }
    __syncthreads();
    if (thread == 0) {
      Mass sum = 0;
      int s = 0;
      while (s + 1 < segments && sum + memory_.sums[s] <= target) sum += memory_.sums[s++];
      memory_.above = sum;
      memory_.index = s;
    }
    __syncthreads();
    if (thread < 32) {
      Mass before = memory_.above;
      const int begin = memory_.index * kSegmentTokens;
      int found = -1;
      for (int first = begin; first < min(count_, begin + kSegmentTokens) && found < 0;
           first += 32) {
        const int i = first + lane;
        const Mass running = before + running_total(i < count_ ? mass(i, key_of(row_[i])) : 0);
        const unsigned beyond = __ballot_sync(kWholeWarp, running > target);
        if (beyond != 0) found = first + __ffs(static_cast<int>(beyond)) - 1;
        before = __shfl_sync(kWholeWarp, running, 31);
      }
      __syncwarp();  // all lanes have read the segment's index
      if (lane == 0) memory_.index = found;
    }
    __syncthreads();
    const int result = memory_.index;
    __syncthreads();
    return result;
  }

  __device__ int count() const { return count_; }

 private:
  static __device__ Mass warp_total(Mass value) {
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2) {
      value += __shfl_xor_sync(kWholeWarp, value, distance);
    }
    return value;
  }
  static __device__ Mass running_total(Mass value) {
#pragma unroll
    for (unsigned distance = 1; distance < 32; distance *= 2) {
      const Mass other = __shfl_up_sync(kWholeWarp, value, distance);
      if (threadIdx.x % 32 >= distance) value += other;
    }
    return value;
  }

  const float* row_;
  int count_;
  SearchMemory& memory_;
};

}  // namespace batchmill
