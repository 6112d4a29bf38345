#include "cuda/row_kernels.h"

#include "cuda/launch.h"

namespace batchmill {
namespace {

constexpr int kThreads = 128;

// Grid: rows. A lane reads eight columns at a time, kAtOnce times before the first are written, and
// two neighbours write theirs together, 32 bytes at a time.
__global__ void __launch_bounds__(kThreads)
    embed_kernel(const std::int32_t* ids, const Bf16* table, float scale, float* output, int cols) {
  constexpr int kAtOnce = 4;
  begin_overlapped();
  const long long source = static_cast<long long>(ids[blockIdx.x]) * cols;
  const long long target = static_cast<long long>(blockIdx.x) * cols;
  const bool is_odd = threadIdx.x % 2 != 0;
  for (int first = 0; first < cols; first += kAtOnce * kThreads * 8) {
    const int own = first + static_cast<int>(threadIdx.x) * 8;
    uint4 packed[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int col = own + i * kThreads * 8;
      packed[i] = col < cols ? load16(table + source + col) : make_uint4(0, 0, 0, 0);
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int col = own + i * kThreads * 8;
      float values[8];
      unpack8(packed[i], values);
      float kept[4];
      float given[4];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        kept[j] = (is_odd ? values[4 + j] : values[j]) * scale;
        given[j] = __shfl_xor_sync(kWholeWarp, (is_odd ? values[j] : values[4 + j]) * scale, 1);
      }
      const float4 own_half = make_float4(kept[0], kept[1], kept[2], kept[3]);
      const float4 other_half = make_float4(given[0], given[1], given[2], given[3]);
      const int low = is_odd ? col - 4 : col;
      const int high = is_odd ? col + 4 : col + 8;
      if (low < cols) store_floats(output + target + low, is_odd ? other_half : own_half);
      if (high < cols) store_floats(output + target + high, is_odd ? own_half : other_half);
    }
  }
}

template <bool kAdd>
__global__ void __launch_bounds__(kThreads)
    row_kernel(const std::int32_t* ids, const float* input, float* output, int cols) {
  begin_overlapped();
  const long long source = static_cast<long long>(ids[blockIdx.x]) * cols;
  const long long target = static_cast<long long>(blockIdx.x) * cols;
  for (int col = static_cast<int>(threadIdx.x) * 4; col < cols; col += kThreads * 4) {
    float4 values = load_floats(input + source + col);
    if constexpr (kAdd) {
      const float4 old = load_floats(output + target + col);
      values = make_float4(old.x + values.x, old.y + values.y, old.z + values.z, old.w + values.w);
    }
    store_floats(output + target + col, values);
  }
}

// Grid: sequences. A thread sums its columns over the rows, in their order.
__global__ void __launch_bounds__(kThreads)
    mean_kernel(const std::int32_t* begins, const float* input, float* output, int cols) {
  constexpr int kVectors = kMaxMeanCols / (kThreads * 4);
  SHARED_ARRAY(float, partial, kThreads / 32);
  const int begin = begins[blockIdx.x];
  const int end = begins[blockIdx.x + 1];
  float sums[kVectors][4] = {};
  float squares = 0.0f;
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    const int col = (v * kThreads + static_cast<int>(threadIdx.x)) * 4;
    if (col >= cols) continue;
    for (int row = begin; row < end; ++row) {
      const float4 values = load_floats(input + static_cast<long long>(row) * cols + col);
      sums[v][0] += values.x;
      sums[v][1] += values.y;
      sums[v][2] += values.z;
      sums[v][3] += values.w;
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) squares += sums[v][i] * sums[v][i];
  }
  // The length takes the division by the number of rows out again.
  const float length = sqrtf(block_sum<kThreads>(squares, partial));
  const float factor = 1.0f / fmaxf(length, 1e-12f);
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    const int col = (v * kThreads + static_cast<int>(threadIdx.x)) * 4;
    if (col >= cols) continue;
    store_floats(output + static_cast<long long>(blockIdx.x) * cols + col,
                 make_float4(sums[v][0] * factor, sums[v][1] * factor, sums[v][2] * factor,
                             sums[v][3] * factor));
  }
}

// A thread for each.
__global__ void __launch_bounds__(kThreads)
    take_drawn_kernel(const std::int32_t* drawn, const std::int32_t* chosen, std::int32_t* ids,
                      int num_drawn) {
  const int i = static_cast<int>(blockIdx.x) * kThreads + static_cast<int>(threadIdx.x);
  if (i < num_drawn) ids[drawn[2 * i]] = max(chosen[drawn[2 * i + 1]], 0);
}

// Grid: (copies, layers, parts).
__global__ void __launch_bounds__(kThreads) block_copy_kernel(BlockCopyArguments arguments) {
  const std::int32_t* copy = arguments.copies + 3 * blockIdx.x;
  const int all_rows = arguments.block_tokens * arguments.row_bytes;
  const long long part_bytes = all_rows + arguments.block_tokens * arguments.scale_bytes;
  unsigned char* layer =
      static_cast<unsigned char*>(arguments.cache) + arguments.layer_bytes * blockIdx.y;
  const auto part = [&](int block) {
    return layer + (static_cast<long long>(block) * arguments.parts + blockIdx.z) * part_bytes;
  };
  const unsigned char* source = part(copy[0]);
  unsigned char* target = part(copy[1]);
  const int rows = copy[2] * arguments.row_bytes;
  // Scales of up to three tokens more: nobody has those.
  const int bytes = rows + (copy[2] * arguments.scale_bytes + 15) / 16 * 16;
  for (int at = static_cast<int>(threadIdx.x) * 16; at < bytes; at += kThreads * 16) {
    const int place = at < rows ? at : at - rows + all_rows;
    store16(target + place, load16(source + place));
  }
}

}  // namespace

void launch_embed(const std::int32_t* ids, const void* table, float scale, float* output, int rows,
                  int cols, StreamHandle stream) {
  if (rows == 0) return;
  launch_overlapped(embed_kernel, static_cast<unsigned>(rows), kThreads, 0, stream, ids,
                    static_cast<const Bf16*>(table), scale, output, cols);
}

void launch_add_rows(const std::int32_t* ids, const float* table, float* sum, int rows, int cols,
                     StreamHandle stream) {
  if (rows == 0) return;
  launch_overlapped(row_kernel<true>, static_cast<unsigned>(rows), kThreads, 0, stream, ids, table,
                    sum, cols);
}

void launch_gather(const std::int32_t* ids, const float* input, float* output, int rows, int cols,
                   StreamHandle stream) {
  if (rows == 0) return;
  launch_overlapped(row_kernel<false>, static_cast<unsigned>(rows), kThreads, 0, stream, ids, input,
                    output, cols);
}

void launch_mean(const std::int32_t* begins, const float* input, float* output, int sequences,
                 int cols, StreamHandle stream) {
  if (sequences == 0) return;
  launch(mean_kernel, static_cast<unsigned>(sequences), kThreads, 0, stream, begins, input, output,
         cols);
}

void launch_take_drawn(const std::int32_t* drawn, const std::int32_t* chosen, std::int32_t* ids,
                       int num_drawn, StreamHandle stream) {
  if (num_drawn == 0) return;
  launch(take_drawn_kernel, static_cast<unsigned>((num_drawn + kThreads - 1) / kThreads), kThreads,
         0, stream, drawn, chosen, ids, num_drawn);
}

void launch_block_copy(const BlockCopyArguments& arguments, int num_copies, int num_layers,
                       StreamHandle stream) {
  if (num_copies == 0) return;
  launch(block_copy_kernel,
         dim3(static_cast<unsigned>(num_copies), static_cast<unsigned>(num_layers),
              static_cast<unsigned>(arguments.parts)),
         kThreads, 0, stream, arguments);
}

}  // namespace batchmill
