// Searches over one row of logits by the threads of one block: where a running sum of whole numbers
// exceeds a target, in the order of values or of tokens. No sorting: values are narrowed down to a
// bucket and then eight bits at a time. Of sampler_kernels.cu alone.
#pragma once

#include "cuda/devrt.h"

namespace batchmill {

using Mass = unsigned long long;

inline constexpr int kSampleThreads = 512;
inline constexpr int kSampleWarps = kSampleThreads / 32;
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

__device__ __forceinline__ Mass warp_total(Mass value) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) {
    value += __shfl_xor_sync(kWholeWarp, value, distance);
  }
  return value;
}
__device__ __forceinline__ Mass running_total(Mass value) {
#pragma unroll
  for (unsigned distance = 1; distance < 32; distance *= 2) {
    const Mass other = __shfl_up_sync(kWholeWarp, value, distance);
    if (threadIdx.x % 32 >= distance) value += other;
  }
  return value;
}

// Probabilities as whole numbers, relative to the largest logit's.
struct Weights {
  static constexpr float kSmallestExponent = -87.0f;
  static constexpr double kMassOfOne = 17592186044416.0;  // 2^44: sums of 2^19 stay below 2^63
  static constexpr float kBucketsPerNat = 8.0f;
  static constexpr int kNumBuckets = 256;

  float largest;
  float scale;
  __device__ Mass of(unsigned key) const {
    const float exponent = multiply_rounded(value_of(key) - largest, scale);
    if (!(exponent >= kSmallestExponent)) return 0;
    return static_cast<Mass>(static_cast<double>(expf(exponent)) * kMassOfOne);
  }
  __device__ int bucket_of(unsigned key) const {
    const float depth =
        multiply_rounded(multiply_rounded(largest - value_of(key), scale), kBucketsPerNat);
    return depth < static_cast<float>(kNumBuckets - 1) ? static_cast<int>(depth) : kNumBuckets - 1;
  }
};

struct SearchMemory {  // shared
  Mass sums[kMaxSegments];
  Mass above;
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

  // visit(token, value) for this thread's part of the row; kAtOnce loads are under way together.
  template <int kAtOnce, typename Visit>
  __device__ void each(const Visit& visit) const {
    for (int first = static_cast<int>(threadIdx.x); first < count_;
         first += kAtOnce * kSampleThreads) {
      float values[kAtOnce];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const int token = first + i * kSampleThreads;
        values[i] = token < count_ ? row_[token] : 0.0f;
      }
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const int token = first + i * kSampleThreads;
        if (token < count_) visit(token, values[i]);
      }
    }
  }

  // mass(token, key): 0 for tokens that do not take part.
  // target < the sum of all masses
  template <typename MassOf>
  __device__ ValuePlace by_value(const Weights& weights, const MassOf& mass, Mass target) {
    // Float bits of logits crowd into a few values of their upper digits; buckets do not.
    narrow(
        [&](int token, unsigned key) {
          return Part{weights.bucket_of(key), mass(token, key)};
        },
        0, target);
    const int bucket = memory_.index;
    ValuePlace place{0, memory_.above};
    __syncthreads();
    for (int shift = 24; shift >= 0; shift -= 8) {
      narrow(
          [&](int token, unsigned key) {
            const bool is_part = (shift == 24 || key >> (shift + 8) == place.key) &&
                                 weights.bucket_of(key) == bucket;
            return Part{255 - static_cast<int>(key >> shift & 255u),
                        is_part ? mass(token, key) : 0};
          },
          place.above, target);
      place = {place.key << 8 | (255u - static_cast<unsigned>(memory_.index)), memory_.above};
      __syncthreads();
    }
    return place;
  }

  // Sums segments of the row for find_token(), and all of it.
  template <typename MassOf>
  __device__ Mass sum_segments(const MassOf& mass) {
    constexpr int kAtOnce = 4;
    const int thread = static_cast<int>(threadIdx.x);
    const int lane = thread % 32;
    const int segments = num_segments();
    if (thread == 0) memory_.above = 0;
    __syncthreads();
    Mass all = 0;
    for (int s = thread / 32; s < segments; s += kSampleWarps) {
      const int end = min(count_, (s + 1) * kSegmentTokens);
      Mass sum = 0;
      for (int first = s * kSegmentTokens + lane; first < end; first += kAtOnce * 32) {
        float values[kAtOnce];
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i) {
          values[i] = first + i * 32 < end ? row_[first + i * 32] : 0.0f;
        }
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i) {
          if (first + i * 32 < end) sum += mass(first + i * 32, key_of(values[i]));
        }
      }
      sum = warp_total(sum);
      if (lane == 0) memory_.sums[s] = sum;
      all += sum;
    }
    if (lane == 0 && all != 0) atomicAdd(&memory_.above, all);
    __syncthreads();
    const Mass total = memory_.above;
    __syncthreads();
    return total;
  }

  // The token at which, in ascending order of tokens, the running sum exceeds the target; after
  // sum_segments() of the same masses. target < the sum of all
  template <typename MassOf>
  __device__ int find_token(const MassOf& mass, Mass target) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    find_part(num_segments(), 0, target);
    if (threadIdx.x < 32) {
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

  template <typename MassOf>
  __device__ int by_token(const MassOf& mass, Mass target) {
    sum_segments(mass);
    return find_token(mass, target);
  }

  __device__ int count() const { return count_; }

 private:
  struct Part {
    int index;  // of 256, the largest values' first
    Mass mass;
  };

  __device__ int num_segments() const { return (count_ + kSegmentTokens - 1) / kSegmentTokens; }

  // To memory_.index and memory_.above: in which of 256 parts the sum exceeds the target.
  template <typename PartOf>
  __device__ void narrow(const PartOf& part_of, Mass before, Mass target) {
    if (threadIdx.x < 256) memory_.sums[threadIdx.x] = 0;
    __syncthreads();
    each<4>([&](int token, float value) {
      const Part part = part_of(token, key_of(value));
      if (part.mass != 0) atomicAdd(&memory_.sums[part.index], part.mass);
    });
    __syncthreads();
    find_part(256, before, target);
  }

  // The first of `parts` sums at which the running sum exceeds the target, and the sum before it.
  __device__ void find_part(int parts, Mass before, Mass target) {
    if (threadIdx.x < 32) {
      const int lane = static_cast<int>(threadIdx.x);
      int found = parts - 1;
      bool is_found = false;
      for (int first = 0; first < parts && !is_found; first += 32) {
        const Mass own = first + lane < parts ? memory_.sums[first + lane] : 0;
        const Mass running = before + running_total(own);
        const unsigned exceeding = __ballot_sync(kWholeWarp, running > target);
        is_found = exceeding != 0;
        const int at = is_found ? __ffs(static_cast<int>(exceeding)) - 1 : 31;
        if (is_found) found = first + at;
        before = __shfl_sync(kWholeWarp, is_found ? running - own : running, at);
      }
      if (lane == 0) {
        memory_.above = before;
        memory_.index = found;
      }
    }
    __syncthreads();
  }

  const float* row_;
  int count_;
  SearchMemory& memory_;
};

}  // namespace batchmill
