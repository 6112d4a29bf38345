// The one header of kernels: the same names under nvcc and, with emulated threads, under g++.
//
// Rules: kernels are launched by launch() (cuda/launch.h) with whole warps; shared memory is
// SHARED_ARRAY or DYNAMIC_SHARED; no thread leaves before a barrier that others wait at;
// collectives are of the whole warp; bf16 travels as 16 bytes, packed in pairs in 32 bits.
#pragma once

#if defined(__CUDACC__)
#include "cuda/devrt_nvcc.h"
#else
#include "cuda/emulation/device_code.h"
#include "cuda/emulation/language.h"
#endif

namespace batchmill {

inline constexpr unsigned kWholeWarp = 0xFFFFFFFFu;

using Bf16 = std::uint16_t;  // the bits

__device__ __forceinline__ float low_bf16(unsigned pair) { return __uint_as_float(pair << 16); }
__device__ __forceinline__ float high_bf16(unsigned pair) {
  return __uint_as_float(pair & 0xFFFF0000u);
}

// Eight bf16 of 16 aligned bytes.
__device__ __forceinline__ void unpack8(uint4 packed, float (&values)[8]) {
  const unsigned pairs[4] = {packed.x, packed.y, packed.z, packed.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    values[2 * i] = low_bf16(pairs[i]);
    values[2 * i + 1] = high_bf16(pairs[i]);
  }
}
__device__ __forceinline__ uint4 pack8(const float (&values)[8]) {
  return make_uint4(pack_bf16(values[0], values[1]), pack_bf16(values[2], values[3]),
                    pack_bf16(values[4], values[5]), pack_bf16(values[6], values[7]));
}

// Four floats of 16 aligned bytes.
__device__ __forceinline__ float4 load_floats(const float* address) {
  const uint4 bits = load16(address);
  return make_float4(__uint_as_float(bits.x), __uint_as_float(bits.y), __uint_as_float(bits.z),
                     __uint_as_float(bits.w));
}
__device__ __forceinline__ void store_floats(float* address, float4 values) {
  store16(address, make_uint4(__float_as_uint(values.x), __float_as_uint(values.y),
                              __float_as_uint(values.z), __float_as_uint(values.w)));
}

template <int kLanes = 32>
__device__ __forceinline__ float warp_sum(float value) {
#pragma unroll
  for (int distance = kLanes / 2; distance > 0; distance /= 2) {
    value += __shfl_xor_sync(kWholeWarp, value, distance);
  }
  return value;
}
template <int kLanes = 32>
__device__ __forceinline__ float warp_max(float value) {
#pragma unroll
  for (int distance = kLanes / 2; distance > 0; distance /= 2) {
    value = fmaxf(value, __shfl_xor_sync(kWholeWarp, value, distance));
  }
  return value;
}

// The sum over the block, in every thread. `partial` [warps]: shared; free again after the next
// barrier.
template <int kThreads>
__device__ __forceinline__ float block_sum(float value, float* partial) {
  value = warp_sum(value);
  if constexpr (kThreads == 32) return value;
  if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = value;
  __syncthreads();
  float total = 0.0f;
#pragma unroll
  for (int i = 0; i < kThreads / 32; ++i) total += partial[i];
  return total;
}

// How kernels of launch_overlapped() begin that have nothing to do before the others' results are
// there.
__device__ __forceinline__ void begin_overlapped() {
  let_next_kernel_begin();
  wait_for_previous_kernel();
}

}  // namespace batchmill
