#include "cuda/rotary_kernels.h"

#include "cuda/launch.h"

namespace batchmill {
namespace {

constexpr int kThreads = 128;

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

__device__ __forceinline__ void load8(const float* address, float (&values)[8]) {
  const float4 low = load_floats(address);
  const float4 high = load_floats(address + 4);
  values[0] = low.x;
  values[1] = low.y;
  values[2] = low.z;
  values[3] = low.w;
  values[4] = high.x;
  values[5] = high.y;
  values[6] = high.z;
  values[7] = high.w;
}

// Lanes that share a head: a power of two that has eight elements of each half for every lane.
int lanes_of_head(int dim) {
  int lanes = 1;
  while (lanes * 16 < dim) lanes *= 2;
  return lanes;
}

// kThreads ÷ lanes heads of a row; grid: (rows, heads ÷ that). A lane has eight elements of a
// head's first half and the eight that are rotated with them.
__global__ void __launch_bounds__(kThreads) store_kernel(StoreArguments arguments, int lanes) {
  begin_overlapped();
  const int row = static_cast<int>(blockIdx.x);
  const int head = static_cast<int>(blockIdx.y * kThreads + threadIdx.x) / lanes;
  const int lane = static_cast<int>(threadIdx.x) % lanes;
  const int all_heads = arguments.heads + 2 * arguments.kv_heads;
  const int dim = arguments.dim;
  const int half = dim / 2;
  const bool is_query = head < arguments.heads;
  const bool is_key = !is_query && head < arguments.heads + arguments.kv_heads;
  const bool inside = lane * 8 < half && head < all_heads;
  Bf16* source = static_cast<Bf16*>(arguments.qkv) +
                 (static_cast<long long>(row) * all_heads + head) * dim + lane * 8;
  uint4 packed[2] = {};
  if (inside) {
    packed[0] = load16(source);
    packed[1] = load16(source + half);
  }
  float first[8];
  float second[8];
  unpack8(packed[0], first);
  unpack8(packed[1], second);
  if (arguments.query_norm != nullptr) {
    float squares = 0.0f;
#pragma unroll
    for (int i = 0; i < 8; ++i) squares += first[i] * first[i] + second[i] * second[i];
    for (int distance = lanes / 2; distance > 0; distance /= 2) {
      squares += __shfl_xor_sync(kWholeWarp, squares, distance);
    }
    const float scale = 1.0f / sqrtf(squares / static_cast<float>(dim) + arguments.epsilon);
    if (inside && (is_query || is_key)) {
      const float* norm = is_query ? arguments.query_norm : arguments.key_norm;
      float weights[8];
      load8(norm + lane * 8, weights);
#pragma unroll
      for (int i = 0; i < 8; ++i) first[i] *= scale * weights[i];
      load8(norm + half + lane * 8, weights);
#pragma unroll
      for (int i = 0; i < 8; ++i) second[i] *= scale * weights[i];
      // The activations' type, as between any two operations.
      unpack8(pack8(first), first);
      unpack8(pack8(second), second);
    }
  }
  if (!inside) return;
  if (arguments.rotations != nullptr && (is_query || is_key)) {
    const float* table = arguments.rotations + static_cast<long long>(row) * dim + lane * 8;
    float cosines[8];
    float sines[8];
    load8(table, cosines);
    load8(table + half, sines);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const float cosine = cosines[i];
      const float sine = sines[i];
      const float rotated = first[i] * cosine - second[i] * sine;
      second[i] = second[i] * cosine + first[i] * sine;
      first[i] = rotated;
    }
  }
  packed[0] = pack8(first);
  packed[1] = pack8(second);
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
  const int threads = (arguments.heads + 2 * arguments.kv_heads) * lanes_of_head(arguments.dim);
  launch_overlapped(
      store_kernel,
      dim3(static_cast<unsigned>(rows), static_cast<unsigned>((threads + kThreads - 1) / kThreads)),
      kThreads, 0, stream, arguments, lanes_of_head(arguments.dim));
}

}  // namespace batchmill
