#include "cuda/rotary_kernels.h"

#include <stdexcept>

#include "cuda/kv_bytes.h"
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

// A head's row times the Hadamard matrix of its size, not normalised. A lane has eight elements of
// each half. By a whole warp, `lanes` of which share a head.
__device__ __forceinline__ void mix_row(float (&first)[8], float (&second)[8], int lanes) {
  const auto mix = [](float& low, float& high) {
    const float sum = low + high;
    high = low - high;
    low = sum;
  };
#pragma unroll
  for (int i = 0; i < 8; ++i) mix(first[i], second[i]);
#pragma unroll
  for (int distance = 1; distance < 8; distance *= 2) {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      if ((i & distance) != 0) continue;
      mix(first[i], first[i + distance]);
      mix(second[i], second[i + distance]);
    }
  }
  for (int distance = 1; distance < lanes; distance *= 2) {
    const float sign = (static_cast<int>(threadIdx.x) & distance) == 0 ? 1.0f : -1.0f;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      first[i] = first[i] * sign + __shfl_xor_sync(kWholeWarp, first[i], distance);
      second[i] = second[i] * sign + __shfl_xor_sync(kWholeWarp, second[i], distance);
    }
  }
}

// A head's row as it is stored in bytes. A lane has eight elements of each half, like `first` and
// `second`, and makes of them eight bytes for each half.
template <DType kKv>
struct ByteRow {
  uint2 bytes[2];
  float scale;

  // By a whole warp, `lanes` of which share a head.
  __device__ __forceinline__ ByteRow(const float (&first)[8], const float (&second)[8], bool is_key,
                                     int lanes) {
    unsigned largest = 0;  // as bits, of which those of infinities and NaN are the largest
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      largest = max(largest, max(__float_as_uint(first[i]) & 0x7FFFFFFFu,
                                 __float_as_uint(second[i]) & 0x7FFFFFFFu));
    }
    for (int distance = lanes / 2; distance > 0; distance /= 2) {
      largest = max(largest, __shfl_xor_sync(kWholeWarp, largest, distance));
    }
    const bool is_finite = largest < 0x7F800000u;
    const float most = __uint_as_float(largest);
    scale = is_finite ? most * (1.0f / kLargestByte<kKv>) : __uint_as_float(0x7FFFFFFFu);
    const float inverse = is_finite && most > 1e-30f ? fast_divide(1.0f, scale) : 0.0f;
    bytes[0] = is_finite ? narrow_to_bytes<kKv>(first, inverse) : make_uint2(0, 0);
    bytes[1] = is_finite ? narrow_to_bytes<kKv>(second, inverse) : make_uint2(0, 0);
    if (lanes == 1) {  // all sixteen are here
      if (is_key) interleave(bytes[0], bytes[1]);
      return;
    }
    // A key's sixteen are shared by two lanes, which store a half of them each.
    const bool is_odd = threadIdx.x % 2 != 0;
#pragma unroll
    for (uint2& own : bytes) {
      const unsigned other = __shfl_xor_sync(kWholeWarp, is_odd ? own.x : own.y, 1);
      if (!is_key) continue;
      const unsigned low = is_odd ? other : own.x;
      const unsigned high = is_odd ? own.y : other;
      own = make_uint2(interleave_low(low, high), interleave_high(low, high));
    }
  }

  // Bytes of the first eight and of the others by turns.
  static __device__ __forceinline__ void interleave(uint2& low, uint2& high) {
    const uint2 first = make_uint2(interleave_low(low.x, high.x), interleave_high(low.x, high.x));
    high = make_uint2(interleave_low(low.y, high.y), interleave_high(low.y, high.y));
    low = first;
  }
};

// kThreads ÷ lanes heads of a row; grid: (rows, heads ÷ that). A lane has eight elements of a
// head's first half and the eight that are rotated with them.
template <DType kKv>
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
  if (inside && arguments.rotations != nullptr && (is_query || is_key)) {
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
  const int kv_head = head - arguments.heads;  // values follow keys here as in the cache
  if (kKv != DType::kBF16 && inside && is_key && arguments.key_offset != nullptr) {
    float offsets[8];
    const float* key_offset = arguments.key_offset + kv_head * dim + lane * 8;
    load8(key_offset, offsets);
#pragma unroll
    for (int i = 0; i < 8; ++i) first[i] -= offsets[i];
    load8(key_offset + half, offsets);
#pragma unroll
    for (int i = 0; i < 8; ++i) second[i] -= offsets[i];
  }
  if constexpr (kMixesKeys<kKv>) {
    // Values are not mixed, but their lanes take part.
    float mixed[2][8];
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      mixed[0][i] = first[i];
      mixed[1][i] = second[i];
    }
    mix_row(mixed[0], mixed[1], lanes);
    if (is_query || is_key) {
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        first[i] = mixed[0][i];
        second[i] = mixed[1][i];
      }
    }
  }
  if (inside && is_query) {
    store16(source, pack8(first));
    store16(source + half, pack8(second));
  }
  const int slot = arguments.slots[row];
  const bool is_stored = inside && !is_query && slot >= 0;
  const int tokens = arguments.block_tokens;
  const long long part = static_cast<long long>(slot / tokens) * 2 * arguments.kv_heads + kv_head;
  const int offset = slot % tokens;
  if constexpr (kKv == DType::kBF16) {
    if (!is_stored) return;
    Bf16* target = static_cast<Bf16*>(arguments.cache) + (part * tokens + offset) * dim + lane * 8;
    store16(target, pack8(first));
    store16(target + half, pack8(second));
  } else {
    const ByteRow<kKv> stored(first, second, is_key, lanes);
    if (!is_stored) return;
    unsigned char* rows = static_cast<unsigned char*>(arguments.cache) + part * tokens * (dim + 4);
    unsigned char* target = rows + offset * dim + lane * 8;
    *reinterpret_cast<uint2*>(target) = stored.bytes[0];
    *reinterpret_cast<uint2*>(target + half) = stored.bytes[1];
    if (lane == 0) {
      // Queries and keys have been made larger by the root of dim each.
      const float own =
          kMixesKeys<kKv> && is_key ? stored.scale / static_cast<float>(dim) : stored.scale;
      reinterpret_cast<float*>(rows + tokens * dim)[offset] = own;
    }
  }
}

template <DType kKv>
void launch_store_of(const StoreArguments& arguments, int rows, StreamHandle stream) {
  const int threads = (arguments.heads + 2 * arguments.kv_heads) * lanes_of_head(arguments.dim);
  launch_overlapped(
      store_kernel<kKv>,
      dim3(static_cast<unsigned>(rows), static_cast<unsigned>((threads + kThreads - 1) / kThreads)),
      kThreads, 0, stream, arguments, lanes_of_head(arguments.dim));
}

}  // namespace

void launch_rotation_table(const RotationArguments& arguments, int rows, StreamHandle stream) {
  if (rows == 0) return;
  launch_overlapped(rotation_kernel, static_cast<unsigned>(rows), kThreads, 0, stream, arguments);
}

void launch_store(const StoreArguments& arguments, int rows, StreamHandle stream) {
  if (rows == 0) return;
  switch (arguments.kv) {
    case DType::kBF16:
      return launch_store_of<DType::kBF16>(arguments, rows, stream);
    case DType::kI8:
      return launch_store_of<DType::kI8>(arguments, rows, stream);
    case DType::kF8:
      return launch_store_of<DType::kF8>(arguments, rows, stream);
    case DType::kF32:
      throw std::invalid_argument("keys and values in float32 are not stored");
  }
}

}  // namespace batchmill
