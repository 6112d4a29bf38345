// The PTX that kernels use, behind functions, for nvcc. cuda/emulation has their twins. Included by
// cuda/devrt.h alone.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

#define SHARED_ARRAY(T, name, count) __shared__ __align__(16) T name[count]
#define DYNAMIC_SHARED(T, name)                                              \
  extern __shared__ __align__(128) unsigned char batchmill_dynamic_shared[]; \
  T* name = reinterpret_cast<T*>(batchmill_dynamic_shared)

namespace batchmill {

// 16 bytes from global to shared memory, or zeros if !is_valid; `global` is an address all the
// same.
__device__ __forceinline__ void copy_async16(void* shared, const void* global, bool is_valid) {
  const auto target = static_cast<unsigned>(__cvta_generic_to_shared(shared));
  const int bytes = is_valid ? 16 : 0;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(target), "l"(global),
               "r"(bytes)
               : "memory");
}
// 4 bytes likewise.
__device__ __forceinline__ void copy_async4(void* shared, const void* global, bool is_valid) {
  const auto target = static_cast<unsigned>(__cvta_generic_to_shared(shared));
  const int bytes = is_valid ? 4 : 0;
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;\n" ::"r"(target), "l"(global),
               "r"(bytes)
               : "memory");
}
__device__ __forceinline__ void commit_copies() {
  asm volatile("cp.async.commit_group;\n" ::: "memory");
}
// Until all but the youngest groups have landed; a barrier makes them visible to other threads.
template <int kPendingGroups>
__device__ __forceinline__ void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;\n" ::"n"(kPendingGroups) : "memory");
}

// Four 8×8 matrices of 16-bit elements. Lane 8 m + r gives the address of row r of matrix m; lane
// 4 g + t receives of each matrix columns 2 t, 2 t + 1 of row g.
__device__ __forceinline__ void load_matrices(std::uint32_t (&result)[4], const void* row) {
  const auto address = static_cast<unsigned>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];\n"
               : "=r"(result[0]), "=r"(result[1]), "=r"(result[2]), "=r"(result[3])
               : "r"(address)
               : "memory");
}
// The same of the transposed matrices: rows 2 t, 2 t + 1 of column g.
__device__ __forceinline__ void load_matrices_transposed(std::uint32_t (&result)[4],
                                                         const void* row) {
  const auto address = static_cast<unsigned>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];\n"
               : "=r"(result[0]), "=r"(result[1]), "=r"(result[2]), "=r"(result[3])
               : "r"(address)
               : "memory");
}

// C [16, 8] f32 += A [16, 16] · B [16, 8] bf16.
__device__ __forceinline__ void multiply_bf16(float (&sums)[4], const std::uint32_t (&a)[4],
                                              std::uint32_t b0, std::uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
      "{%8,%9}, {%0,%1,%2,%3};\n"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Adds and returns what was there. What the caller wrote before, and what it knows that others
// wrote, those know who add later.
__device__ __forceinline__ int add_in_order(int* address, int value) {
  int old;
  asm volatile("atom.acq_rel.gpu.global.add.s32 %0, [%1], %2;\n"
               : "=r"(old)
               : "l"(__cvta_generic_to_global(address)), "r"(value)
               : "memory");
  return old;
}

__device__ __forceinline__ float fast_exp2(float x) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;\n" : "=f"(result) : "f"(x));
  return result;
}
// Rounded on their own, never fused.
__device__ __forceinline__ float multiply_rounded(float a, float b) { return __fmul_rn(a, b); }
__device__ __forceinline__ float add_rounded(float a, float b) { return __fadd_rn(a, b); }
__device__ __forceinline__ float fast_divide(float a, float b) { return __fdividef(a, b); }

// To the nearest, ties to even; a in the low half.
__device__ __forceinline__ unsigned pack_bf16(float a, float b) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(a, b);
  return *reinterpret_cast<const unsigned*>(&pair);
}

// Of two pairs of bf16, a × b + c, rounded once; numbers that are not normal count.
__device__ __forceinline__ unsigned multiply_add_bf16(unsigned a, unsigned b, unsigned c) {
  unsigned result;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;\n" : "=r"(result) : "r"(a), "r"(b), "r"(c));
  return result;
}

__device__ __forceinline__ uint4 load16(const void* address) {
  return *static_cast<const uint4*>(address);
}
// Of what no kernel writes and nobody reads again soon.
__device__ __forceinline__ uint4 load_once16(const void* address) {
  uint4 value;
  asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0,%1,%2,%3}, [%4];\n"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "l"(address));
  return value;
}
__device__ __forceinline__ void store16(void* address, uint4 value) {
  *static_cast<uint4*>(address) = value;
}

// Of kernels that launch_overlapped() launches. Until wait_for_previous_kernel() has returned, a
// kernel may read what no kernel writes, and nothing else.
__device__ __forceinline__ void wait_for_previous_kernel() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;\n" ::: "memory");
#endif
}
// The next kernel may begin as soon as all blocks have said so.
__device__ __forceinline__ void let_next_kernel_begin() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;\n" ::: "memory");
#endif
}

}  // namespace batchmill
