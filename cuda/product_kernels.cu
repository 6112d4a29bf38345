#include "cuda/product_kernels.h"

#include "cuda/launch.h"

namespace batchmill {
namespace {

constexpr int kOutputs = 16;  // of a block: the rows of a matrix instruction
constexpr int kChunk = 32;  // weights of an output that four lanes read at a time
constexpr int kChunks = 4;  // on their way together, for this turn and the next
constexpr int kStride = kOutputs + 4;  // of a row's partial sums: no bank is written twice
constexpr int kSums = kOutputs * kMaxProductRows;
constexpr int kManyThreads = 512;

// What a lane has of a turn: eight weights of each chunk, of outputs g and g + 8 of the block.
struct Weights16 {
  uint4 of[kChunks][2];
};
struct Inputs8 {
  uint4 of[kChunks];
};

// Grid: outputs ÷ 16. Warps take turns at a row's weights, kChunks × 32 of them a turn. Lane 4 g +
// t reads eight neighbouring weights where a matrix instruction wants four pairs of them: input
// rows are read likewise, and sums do not care in which order k comes.
template <int kThreads>
__global__ void __launch_bounds__(kThreads, kManyThreads / kThreads)
    product_kernel(ProductArguments arguments) {
  constexpr int kWarps = kThreads / 32;
  SHARED_ARRAY(float, partial, kWarps* kMaxProductRows* kStride);
  const int thread = static_cast<int>(threadIdx.x);
  const int warp = thread / 32;
  const int group = thread % 32 / 4;
  const int first_output = static_cast<int>(blockIdx.x) * kOutputs;
  const int in = arguments.in;
  const int own_k = warp * kChunks * kChunk + thread % 4 * 8;
  const auto weight_row = [&](int output) {  // the last one again beyond the end
    return static_cast<const Bf16*>(arguments.weight) +
           static_cast<long long>(min(output, arguments.out - 1)) * in;
  };
  const Bf16* weights[2] = {weight_row(first_output + group), weight_row(first_output + group + 8)};
  const Bf16* input =
      static_cast<const Bf16*>(arguments.input) + static_cast<long long>(group) * in;
  const bool is_row = group < arguments.rows;

  const auto load_weights = [&](Weights16& turn, int k) {
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
      const bool inside = k + c * kChunk < in;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        turn.of[c][half] =
            inside ? load_once16(weights[half] + k + c * kChunk) : make_uint4(0, 0, 0, 0);
      }
    }
  };
  const auto load_inputs = [&](Inputs8& turn, int k) {
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
      const bool inside = is_row && k + c * kChunk < in;
      turn.of[c] = inside ? load16(input + k + c * kChunk) : make_uint4(0, 0, 0, 0);
    }
  };

  let_next_kernel_begin();
  Weights16 now;
  load_weights(now, own_k);
  wait_for_previous_kernel();
  Inputs8 inputs;
  load_inputs(inputs, own_k);

  // What the sum of this thread is added to, read early.
  const int row = thread / kOutputs;
  const int output = first_output + thread % kOutputs;
  const bool is_sum = thread < kSums && row < arguments.rows && output < arguments.out;
  const long long target = static_cast<long long>(row) * arguments.out + output;
  float total = 0.0f;
  if (is_sum && arguments.bias != nullptr) total = arguments.bias[output];
  if (is_sum && arguments.accumulate) total += static_cast<float*>(arguments.output)[target];

  float sums[4] = {};
  constexpr int kTurn = kWarps * kChunks * kChunk;
  for (int k = own_k; k - thread % 4 * 8 < in; k += kTurn) {  // the same turns for all lanes
    Weights16 next;
    Inputs8 next_inputs;
    load_weights(next, k + kTurn);
    load_inputs(next_inputs, k + kTurn);
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
      const uint4 low = now.of[c][0];
      const uint4 high = now.of[c][1];
      multiply_bf16(sums, {low.x, high.x, low.y, high.y}, inputs.of[c].x, inputs.of[c].y);
      multiply_bf16(sums, {low.z, high.z, low.w, high.w}, inputs.of[c].z, inputs.of[c].w);
    }
    now = next;
    inputs = next_inputs;
  }

  float* own = partial + warp * kMaxProductRows * kStride + thread % 4 * 2 * kStride + group;
  own[0] = sums[0];
  own[kStride] = sums[1];
  own[8] = sums[2];
  own[kStride + 8] = sums[3];
  __syncthreads();
  if (!is_sum) return;
#pragma unroll
  for (int w = 0; w < kWarps; ++w) {
    total += partial[(w * kMaxProductRows + row) * kStride + thread % kOutputs];
  }
  if (arguments.is_f32) {
    static_cast<float*>(arguments.output)[target] = total;
  } else {
    static_cast<Bf16*>(arguments.output)[target] = static_cast<Bf16>(pack_bf16(total, 0.0f));
  }
}

}  // namespace

void launch_product(const ProductArguments& arguments, StreamHandle stream) {
  if (arguments.rows == 0) return;
  // Few outputs of many weights each: more warps per output, or too little is on its way.
  constexpr int kFewBlocks = 132;
  constexpr int kLong = 2048;
  const int blocks = (arguments.out + kOutputs - 1) / kOutputs;
  const bool is_long = blocks <= kFewBlocks && arguments.in >= kLong;
  const int threads = is_long ? kManyThreads : kManyThreads / 2;
  launch_overlapped(is_long ? product_kernel<kManyThreads> : product_kernel<kManyThreads / 2>,
                    static_cast<unsigned>(blocks), static_cast<unsigned>(threads), 0, stream,
                    arguments);
}

}  // namespace batchmill
