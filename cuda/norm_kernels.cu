#include "cuda/norm_kernels.h"

#include "cuda/launch.h"

namespace batchmill {
namespace {

constexpr int kThreads = 256;

// Grid: rows. A thread keeps kVectors × 8 of its row's elements in registers: 8 consecutive ones in
// every kThreads × 8.
template <bool kLayer, NormOutput kOutput, int kVectors>
__global__ void __launch_bounds__(kThreads) norm_kernel(NormArguments arguments) {
  SHARED_ARRAY(float, partial, kThreads / 32);
  SHARED_ARRAY(float, partial_squares, kThreads / 32);
  begin_overlapped();
  const long long row = blockIdx.x;
  const float* input = arguments.input + row * arguments.cols;
  const float divisor = static_cast<float>(arguments.cols);

  // Step 1: read the row and sum it, or its squares.
  float values[kVectors][8];
  float sum = 0.0f;
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    const int col = (v * kThreads + static_cast<int>(threadIdx.x)) * 8;
    const bool inside = col < arguments.cols;
    const float4 low = inside ? load_floats(input + col) : make_float4(0, 0, 0, 0);
    const float4 high = inside ? load_floats(input + col + 4) : make_float4(0, 0, 0, 0);
    const float loaded[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      values[v][i] = loaded[i];
      sum += kLayer ? loaded[i] : loaded[i] * loaded[i];
    }
  }
  const float average = block_sum<kThreads>(sum, partial) / divisor;
  float mean_square = average;  // RMS norms summed squares

  // Step 2, layer norms: centre the row and sum the squares.
  if constexpr (kLayer) {
    float squares = 0.0f;
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      const int col = (v * kThreads + static_cast<int>(threadIdx.x)) * 8;
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        values[v][i] -= average;
        if (col < arguments.cols) squares += values[v][i] * values[v][i];
      }
    }
    mean_square = block_sum<kThreads>(squares, partial_squares) / divisor;
  }
  const float scale = 1.0f / sqrtf(mean_square + arguments.epsilon);

  // Step 3: scale and write.
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    const int col = (v * kThreads + static_cast<int>(threadIdx.x)) * 8;
    if (col >= arguments.cols) continue;
    float out[8];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float4 weight = load_floats(arguments.weight + col + 4 * half);
      const float weights[4] = {weight.x, weight.y, weight.z, weight.w};
      float biases[4] = {};
      if constexpr (kLayer) {
        const float4 bias = load_floats(arguments.bias + col + 4 * half);
        biases[0] = bias.x;
        biases[1] = bias.y;
        biases[2] = bias.z;
        biases[3] = bias.w;
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        out[4 * half + i] = values[v][4 * half + i] * scale * weights[i] + biases[i];
      }
    }
    if constexpr (kOutput == NormOutput::kBf16) {
      store16(static_cast<Bf16*>(arguments.output) + row * arguments.cols + col, pack8(out));
    } else {
      float* target = static_cast<float*>(arguments.output) + row * arguments.cols + col;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float* part = out + 4 * half;
        float4 result = make_float4(part[0], part[1], part[2], part[3]);
        if constexpr (kOutput == NormOutput::kAdd) {
          const float4 old = load_floats(target + 4 * half);
          result =
              make_float4(old.x + result.x, old.y + result.y, old.z + result.z, old.w + result.w);
        }
        store_floats(target + 4 * half, result);
      }
    }
  }
}

__global__ void __launch_bounds__(kThreads)
    convert_kernel(const float* input, Bf16* output, long long count) {
  begin_overlapped();
  const long long first =
      (static_cast<long long>(blockIdx.x) * kThreads + static_cast<long long>(threadIdx.x)) * 8;
  if (first >= count) return;
  const float4 low = load_floats(input + first);
  const float4 high = load_floats(input + first + 4);
  const float values[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
  store16(output + first, pack8(values));
}

template <bool kLayer, NormOutput kOutput>
void launch_width(const NormArguments& arguments, int rows, StreamHandle stream) {
  const dim3 grid(static_cast<unsigned>(rows));
  if (arguments.cols <= kThreads * 8) {
    launch_overlapped(norm_kernel<kLayer, kOutput, 1>, grid, kThreads, 0, stream, arguments);
  } else if (arguments.cols <= kThreads * 8 * 3) {
    launch_overlapped(norm_kernel<kLayer, kOutput, 3>, grid, kThreads, 0, stream, arguments);
  } else {
    launch_overlapped(norm_kernel<kLayer, kOutput, 8>, grid, kThreads, 0, stream, arguments);
  }
}

template <bool kLayer>
void launch_kind(const NormArguments& arguments, NormOutput output, int rows, StreamHandle stream) {
  switch (output) {
    case NormOutput::kBf16:
      return launch_width<kLayer, NormOutput::kBf16>(arguments, rows, stream);
    case NormOutput::kF32:
      return launch_width<kLayer, NormOutput::kF32>(arguments, rows, stream);
    case NormOutput::kAdd:
      return launch_width<kLayer, NormOutput::kAdd>(arguments, rows, stream);
  }
}

}  // namespace

void launch_norm(const NormArguments& arguments, NormOutput output, int rows, StreamHandle stream) {
  if (rows == 0) return;
  if (arguments.bias != nullptr) {
    launch_kind<true>(arguments, output, rows, stream);
  } else {
    launch_kind<false>(arguments, output, rows, stream);
  }
}

void launch_convert(const float* input, void* output, long long count, StreamHandle stream) {
  if (count == 0) return;
  const auto blocks = static_cast<unsigned>((count / 8 + kThreads - 1) / kThreads);
  launch_overlapped(convert_kernel, blocks, kThreads, 0, stream, input, static_cast<Bf16*>(output),
                    count);
}

}  // namespace batchmill
