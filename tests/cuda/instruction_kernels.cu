#include "tests/cuda/instruction_kernels.h"

#include "cuda/kv_bytes.h"
#include "cuda/launch.h"

namespace batchmill::testing {
namespace {

__global__ void matrix_load_kernel(const Bf16* matrices, bool transposed, unsigned* fragments) {
  SHARED_ARRAY(Bf16, tile, 256);
  const int lane = static_cast<int>(threadIdx.x);
  store16(tile + lane * 8, load16(matrices + lane * 8));
  __syncthreads();
  std::uint32_t result[4];
  if (transposed) {
    load_matrices_transposed(result, tile + lane * 8);
  } else {
    load_matrices(result, tile + lane * 8);
  }
  for (int i = 0; i < 4; ++i) fragments[lane * 4 + i] = result[i];
}

// Lane 4 g + t holds of C rows g and g + 8, columns 2 t and 2 t + 1; of A these rows, columns 2 t,
// 2 t + 1, and 8 further; of B column g, these as rows.
__global__ void product_kernel(const Bf16* a, const Bf16* b, float* c) {
  const int g = static_cast<int>(threadIdx.x) / 4;
  const int t = static_cast<int>(threadIdx.x) % 4 * 2;
  const auto pair = [](Bf16 low, Bf16 high) { return unsigned{low} | unsigned{high} << 16; };
  std::uint32_t left[4];
  for (int i = 0; i < 4; ++i) {
    const Bf16* row = a + (g + i % 2 * 8) * 16 + t + i / 2 * 8;
    left[i] = pair(row[0], row[1]);
  }
  const unsigned right0 = pair(b[t * 8 + g], b[(t + 1) * 8 + g]);
  const unsigned right1 = pair(b[(t + 8) * 8 + g], b[(t + 9) * 8 + g]);
  float sums[4];
  for (int i = 0; i < 4; ++i) sums[i] = c[(g + i / 2 * 8) * 8 + t + i % 2];
  multiply_bf16(sums, left, right0, right1);
  for (int i = 0; i < 4; ++i) c[(g + i / 2 * 8) * 8 + t + i % 2] = sums[i];
}

__global__ void copy_kernel(const Bf16* input, Bf16* output) {
  SHARED_ARRAY(Bf16, landed, 512);
  const int lane = static_cast<int>(threadIdx.x);
  copy_async16(landed + lane * 8, input + lane * 8, true);
  commit_copies();
  copy_async16(landed + 256 + lane * 8, input + lane * 8, lane % 2 == 0);
  commit_copies();
  wait_for_copies<1>();
  __syncthreads();
  // Another lane's: a barrier makes them visible.
  const int other = 31 - lane;
  store16(output + other * 8, load16(landed + other * 8));
  wait_for_copies<0>();
  __syncthreads();
  store16(output + 256 + other * 8, load16(landed + 256 + other * 8));
}

__global__ void arithmetic_kernel(const float* pairs, unsigned* results, int count) {
  for (int i = static_cast<int>(threadIdx.x); i < count; i += 32) {
    const float a = pairs[2 * i];
    const float b = pairs[2 * i + 1];
    results[4 * i] = pack_bf16(a, b);
    results[4 * i + 1] = __float_as_uint(add_rounded(multiply_rounded(a, b), b));
    results[4 * i + 2] = __float_as_uint(fast_exp2(a));
    results[4 * i + 3] = __float_as_uint(fast_divide(a, b));
  }
}

__global__ void multiply_add_kernel(const unsigned* operands, unsigned* results, int count) {
  for (int i = static_cast<int>(threadIdx.x); i < count; i += 32) {
    results[i] = multiply_add_bf16(operands[3 * i], operands[3 * i + 1], operands[3 * i + 2]);
  }
}

template <DType kKv>
__global__ void widen_kernel(const unsigned* words, unsigned* results, int count) {
  for (int i = static_cast<int>(threadIdx.x); i < count; i += 32) {
    const WideBytes wide = widen_bytes<kKv>(words[i]);
    results[2 * i] = wide.even;
    results[2 * i + 1] = wide.odd;
  }
}

template <DType kKv>
__global__ void narrow_kernel(const float* values, unsigned* bytes, int count) {
  for (int i = static_cast<int>(threadIdx.x); i < count; i += 32) {
    bytes[i] = narrow_to_byte<kKv>(values[i]);
  }
}

}  // namespace

void launch_matrix_load(const std::uint16_t* matrices, bool transposed, std::uint32_t* fragments,
                        StreamHandle stream) {
  launch(matrix_load_kernel, 1, 32, 0, stream, matrices, transposed, fragments);
}
void launch_product(const std::uint16_t* a, const std::uint16_t* b, float* c, StreamHandle stream) {
  launch(product_kernel, 1, 32, 0, stream, a, b, c);
}
void launch_copies(const std::uint16_t* input, std::uint16_t* output, StreamHandle stream) {
  launch(copy_kernel, 1, 32, 0, stream, input, output);
}
void launch_arithmetic(const float* pairs, std::uint32_t* results, int count, StreamHandle stream) {
  launch(arithmetic_kernel, 1, 32, 0, stream, pairs, results, count);
}

void launch_multiply_add(const std::uint32_t* operands, std::uint32_t* results, int count,
                         StreamHandle stream) {
  launch(multiply_add_kernel, 1, 32, 0, stream, operands, results, count);
}
void launch_widen(DType kv, const std::uint32_t* words, std::uint32_t* results, int count,
                  StreamHandle stream) {
  launch(kv == DType::kI8 ? widen_kernel<DType::kI8> : widen_kernel<DType::kF8>, 1, 32, 0, stream,
         words, results, count);
}
void launch_narrow(DType kv, const float* values, std::uint32_t* bytes, int count,
                   StreamHandle stream) {
  launch(kv == DType::kI8 ? narrow_kernel<DType::kI8> : narrow_kernel<DType::kF8>, 1, 32, 0, stream,
         values, bytes, count);
}

}  // namespace batchmill::testing
