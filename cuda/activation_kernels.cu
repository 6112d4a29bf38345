#include "cuda/activation_kernels.h"

#include "cuda/launch.h"

namespace batchmill {
namespace {

constexpr int kThreads = 256;

// 1 ÷ (1 + e^−x)
__device__ __forceinline__ float sigmoid(float x) {
  constexpr float kLog2E = 1.44269504f;
  return fast_divide(1.0f, 1.0f + fast_exp2(fminf(x * -kLog2E, 126.0f)));
}

template <GateKind kKind>
__device__ __forceinline__ float activate(float x) {
  if constexpr (kKind == GateKind::kSilu) {
    return x * sigmoid(x);
  } else if constexpr (kKind == GateKind::kGeluTanh) {
    // x ÷ 2 × (1 + tanh u), u = √(2/π) (x + 0.044715 x³); the second factor is 2 sigmoid(2u).
    return x * sigmoid(1.5957691216f * (x + 0.044715f * x * x * x));
  } else {
    return 0.5f * x * (1.0f + erff(x * 0.70710678f));
  }
}

// One thread per eight outputs; grid over all rows.
template <GateKind kKind, bool kGated>
__global__ void __launch_bounds__(kThreads)
    activation_kernel(const Bf16* input, Bf16* output, int rows, int inner) {
  begin_overlapped();
  const int vectors = inner / 8;
  const long long total = static_cast<long long>(rows) * vectors;
  const long long index = static_cast<long long>(blockIdx.x) * kThreads + threadIdx.x;
  if (index >= total) return;
  const long long row = index / vectors;
  const long long col = index % vectors * 8;
  const Bf16* gate = input + row * (kGated ? 2 : 1) * inner + col;
  float values[8];
  unpack8(load16(gate), values);
#pragma unroll
  for (int i = 0; i < 8; ++i) values[i] = activate<kKind>(values[i]);
  if constexpr (kGated) {
    float up[8];
    unpack8(load16(gate + inner), up);
#pragma unroll
    for (int i = 0; i < 8; ++i) values[i] *= up[i];
  }
  store16(output + row * inner + col, pack8(values));
}

template <GateKind kKind>
void launch_kind(bool gated, const void* input, void* output, int rows, int inner,
                 StreamHandle stream) {
  const long long total = static_cast<long long>(rows) * (inner / 8);
  const auto blocks = static_cast<unsigned>((total + kThreads - 1) / kThreads);
  launch_overlapped(gated ? activation_kernel<kKind, true> : activation_kernel<kKind, false>,
                    blocks, kThreads, 0, stream, static_cast<const Bf16*>(input),
                    static_cast<Bf16*>(output), rows, inner);
}

}  // namespace

void launch_activation(GateKind kind, bool gated, const void* input, void* output, int rows,
                       int inner, StreamHandle stream) {
  if (rows == 0) return;
  switch (kind) {
    case GateKind::kSilu:
      return launch_kind<GateKind::kSilu>(gated, input, output, rows, inner, stream);
    case GateKind::kGeluTanh:
      return launch_kind<GateKind::kGeluTanh>(gated, input, output, rows, inner, stream);
    case GateKind::kGeluErf:
      return launch_kind<GateKind::kGeluErf>(gated, input, output, rows, inner, stream);
  }
}

}  // namespace batchmill
