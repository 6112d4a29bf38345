#include "cuda/rotary_kernels.h"

#include "cuda/launch.h"

namespace batchmill {
namespace {

constexpr int kThreads = 128;
constexpr int kWarps = kThreads / 32;

// Grid: rows.
__global__ void __launch_bounds__(kThreads) rotation_kernel(RotationArguments arguments) {
  begin_overlapped();
  const int half = arguments.half;
  const int position = arguments.positions[blockIdx.x];
  float growth = 1.0f;
  if (arguments.original_context > 0 && position >= arguments.original_context) {
    growth = arguments.factor * static_cast<float>(position + 1) /
                 static_cast<float>(arguments.original_context) -
             (arguments.factor - 1.0f);
  }
  float* row = arguments.output + static_cast<long long>(blockIdx.x) * 2 * half;
  for (int i = static_cast<int>(threadIdx.x); i < half; i += kThreads) {
    float frequency = arguments.frequencies[i];
    if (growth != 1.0f) {
      frequency *= powf(growth, -static_cast<float>(i) / static_cast<float>(half - 1));
    }
    // Half turns, whole turns taken off in double: no slow path for large angles is needed.
    const float angle = static_cast<float>(position) * frequency;
    double turns = static_cast<double>(angle) * 0.15915494309189535;
    turns -= rint(turns);
    const auto half_turns = static_cast<float>(2.0 * turns);
    row[i] = cospif(half_turns) * arguments.magnitude;
    row[half + i] = sinpif(half_turns) * arguments.magnitude;
  }
}

// A warp per head of a row; grid: (rows, heads ÷ kWarps). A lane has eight elements of the head's
// first half and the eight that are rotated with them.
__global__ void __launch_bounds__(kThreads) store_kernel(StoreArguments arguments) {
  begin_overlapped();
  const int row = static_cast<int>(blockIdx.x);
  const int head = static_cast<int>(blockIdx.y * kWarps + threadIdx.x / 32);
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int all_heads = arguments.heads + 2 * arguments.kv_heads;
  const int dim = arguments.dim;
  const int half = dim / 2;
  if (head >= all_heads) return;  // the whole warp; there is no barrier of the block
  const bool is_query = head < arguments.heads;
  const bool is_key = !is_query && head < arguments.heads + arguments.kv_heads;
  const bool inside = lane * 8 < half;
  Bf16* source = static_cast<Bf16*>(arguments.qkv) +
                 (static_cast<long long>(row) * all_heads + head) * dim + lane * 8;
  uint4 packed[2] = {};
  if (inside) {
    packed[0] = load16(source);
    packed[1] = load16(source + half);
  }
  if (is_query || is_key) {
    float first[8];
    float second[8];
    unpack8(packed[0], first);
    unpack8(packed[1], second);
    const float* norm = is_query ? arguments.query_norm : arguments.key_norm;
    if (norm != nullptr) {
      float squares = 0.0f;
#pragma unroll
      for (int i = 0; i < 8; ++i) squares += first[i] * first[i] + second[i] * second[i];
      const float mean = warp_sum(squares) / static_cast<float>(dim);
      const float scale = 1.0f / sqrtf(mean + arguments.epsilon);
      if (inside) {
#pragma unroll
        for (int i = 0; i < 8; ++i) {
          first[i] *= scale * norm[lane * 8 + i];
          second[i] *= scale * norm[half + lane * 8 + i];
        }
      }
      // The activations' type, as between any two operations.
      unpack8(pack8(first), first);
      unpack8(pack8(second), second);
    }
    if (arguments.rotations != nullptr && inside) {
      const float* cosines = arguments.rotations + static_cast<long long>(row) * dim + lane * 8;
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const float cosine = cosines[i];
        const float sine = cosines[half + i];
        const float rotated = first[i] * cosine - second[i] * sine;
        second[i] = second[i] * cosine + first[i] * sine;
        first[i] = rotated;
      }
    }
    packed[0] = pack8(first);
    packed[1] = pack8(second);
  }
  if (!inside) return;
  if (is_query) {
    store16(source, packed[0]);
    store16(source + half, packed[1]);
    return;
  }
  const int slot = arguments.slots[row];
  if (slot < 0) return;
  const int kv_head = head - arguments.heads;  // values follow keys here as in the cache
  const long long block = slot / arguments.block_tokens;
  const int offset = slot % arguments.block_tokens;
  Bf16* target =
      static_cast<Bf16*>(arguments.cache) +
      ((block * 2 * arguments.kv_heads + kv_head) * arguments.block_tokens + offset) * dim +
      lane * 8;
  store16(target, packed[0]);
  store16(target + half, packed[1]);
}

}  // namespace

void launch_rotation_table(const RotationArguments& arguments, int rows, StreamHandle stream) {
  if (rows == 0) return;
  launch_overlapped(rotation_kernel, static_cast<unsigned>(rows), kThreads, 0, stream, arguments);
}

void launch_store(const StoreArguments& arguments, int rows, StreamHandle stream) {
  if (rows == 0) return;
  const int all_heads = arguments.heads + 2 * arguments.kv_heads;
  launch_overlapped(
      store_kernel,
      dim3(static_cast<unsigned>(rows), static_cast<unsigned>((all_heads + kWarps - 1) / kWarps)),
      kThreads, 0, stream, arguments);
}

}  // namespace batchmill
