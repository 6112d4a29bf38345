#include "engine/cpu/int8_gemm.h"

#include <algorithm>
#include <cmath>

#include "engine/cpu/int8_layout.h"
#include "engine/cpu/row_chain.h"

namespace batchmill {
namespace {

// Rows whose bytes stay in a core's second-level cache beside the panels they meet.
constexpr std::int32_t kBlockRows = 96;
constexpr std::int32_t kTileRows = 6;  // of the widest kernel: blocks are whole tiles
// Panels below which dividing a matrix further would leave uneven or small parts.
constexpr std::int32_t kMinChunkPanels = 16;
constexpr std::int32_t kMaxChunksPerThread = 8;
// Rows from which on threads share the work of quantising them.
constexpr std::int32_t kMinSharedRows = 4;
// Panels that a block of scanned logits covers.
constexpr std::int32_t kScanPanels = static_cast<std::int32_t>(kScanBlock) / kPanelColumns;

std::int32_t divide_up(std::int32_t value, std::int32_t divisor) {
  return (value + divisor - 1) / divisor;
}

// The product cut into units that threads take one by one: blocks of rows × chunks of panels.
struct Division {
  std::int32_t block_rows = 0;
  std::int32_t num_blocks = 0;
  std::int32_t num_chunks = 0;

  Division(std::int32_t rows, std::int32_t panels, std::int32_t threads) {
    block_rows = divide_up(divide_up(rows, divide_up(rows, kBlockRows)), kTileRows) * kTileRows;
    num_blocks = divide_up(rows, block_rows);
    const std::int32_t per_thread =
        std::clamp(panels / (threads * kMinChunkPanels), 1, kMaxChunksPerThread);
    num_chunks = std::min(threads * per_thread, panels);
  }
  std::int32_t num_units() const { return num_blocks * num_chunks; }
};

DeviceBuffer& reserve(std::unique_ptr<DeviceBuffer>* buffer, std::size_t bytes) {
  if (*buffer == nullptr || (*buffer)->size_bytes() < bytes) {
    buffer->reset();
    *buffer = allocate_cpu_buffer(bytes);
  }
  return **buffer;
}

// Rotates a row of weights in place, normalised so that its product with a rotated row that is not
// equals the product of both before.
void rotate_weights(float* row, std::int32_t cols) {
  const RowRotation rotation = row_rotation(cols);
  const auto mix = [&](std::int32_t stride, std::int32_t count) {
    for (std::int32_t distance = stride; distance < stride * count; distance *= 2) {
      for (std::int32_t first = 0; first < cols; first += 2 * distance) {
        for (std::int32_t i = first; i < first + distance; ++i) {
          const float a = row[i];
          const float b = row[i + distance];
          row[i] = a + b;
          row[i + distance] = a - b;
        }
      }
    }
  };
  mix(cols / rotation.parts, rotation.parts);
  mix(1, rotation.neighbours);
  const float factor = 1.0f / static_cast<float>(rotation.size());
  for (std::int32_t i = 0; i < cols; ++i) row[i] *= factor;
}

}  // namespace

std::unique_ptr<Int8Matrix> Int8Gemm::pack(std::int32_t out_features, std::int32_t in_features,
                                           const RowSource& rows, std::span<const float> bias) {
  const std::int32_t padded = divide_up(out_features, kPanelColumns) * kPanelColumns;
  const std::int64_t panel_bytes = std::int64_t{kPanelColumns} * in_features;
  auto* panels = static_cast<std::uint8_t*>(
      arena_.allocate(static_cast<std::size_t>(padded) * static_cast<std::size_t>(in_features)));
  auto* scales =
      static_cast<float*>(arena_.allocate(static_cast<std::size_t>(padded) * sizeof(float)));
  std::vector<std::vector<float>> work(static_cast<std::size_t>(team_.size()),
                                       std::vector<float>(static_cast<std::size_t>(in_features)));
  team_.divide(team_.size(), padded / kPanelColumns, [&](std::int32_t panel, std::int32_t thread) {
    std::vector<float>& row = work[static_cast<std::size_t>(thread)];
    // Outputs past the last are zeros.
    std::fill_n(panels + panel * panel_bytes, panel_bytes, std::uint8_t{kWeightOffset});
    const auto first = panel * kPanelColumns;
    for (std::int32_t out = first; out < first + kPanelColumns; ++out) {
      scales[out] = 0.0f;
      if (out >= out_features) continue;
      rows(out, row.data());
      rotate_weights(row.data(), in_features);
      float largest = 0.0f;
      for (const float value : row) largest = std::max(largest, std::abs(value));
      if (!(largest > 0.0f)) continue;
      scales[out] = largest / static_cast<float>(kLargestByte);
      const float inverse = static_cast<float>(kLargestByte) / largest;
      for (std::int32_t col = 0; col < in_features; ++col) {
        const long value = std::lrint(row[static_cast<std::size_t>(col)] * inverse);
        panels[packed_weight_index(out, col, in_features)] =
            static_cast<std::uint8_t>(value + kWeightOffset);
      }
    }
  });
  float* own_bias = nullptr;
  if (!bias.empty()) {
    own_bias =
        static_cast<float*>(arena_.allocate(static_cast<std::size_t>(padded) * sizeof(float)));
    std::fill(std::copy(bias.begin(), bias.end(), own_bias), own_bias + padded, 0.0f);
  }
  return std::make_unique<Int8Matrix>(out_features, in_features, panels, scales, own_bias);
}

void Int8Gemm::run(const Tensor& input, const Int8Matrix& matrix, const Tensor& output,
                   bool accumulate, LogitsScan* scan) {
  const std::int32_t cols = matrix.in_features();
  const auto width = static_cast<std::size_t>(cols);
  const auto num_rows = static_cast<std::size_t>(input.rows);
  auto* bytes = static_cast<std::int8_t*>(reserve(&rows_, num_rows * width).data());
  const std::size_t work_floats = (width + 15) / 16 * 16;
  auto* work = static_cast<float*>(
      reserve(&work_, static_cast<std::size_t>(team_.size()) * work_floats * sizeof(float)).data());
  if (scales_.size() < num_rows) scales_.resize(num_rows);

  const auto quantize = kernels_.quantize_row[static_cast<std::size_t>(input.dtype)];
  const std::int32_t quantizers = input.rows < kMinSharedRows ? 1 : team_.size();
  team_.divide(quantizers, input.rows, [&](std::int32_t row, std::int32_t thread) {
    const auto index = static_cast<std::size_t>(row);
    quantize(static_cast<const std::byte*>(input.data) + index * input.row_bytes(), cols,
             work + static_cast<std::size_t>(thread) * work_floats, bytes + index * width,
             &scales_[index]);
  });

  const auto multiply = accumulate ? kernels_.multiply_rows_add
                                   : kernels_.multiply_rows[static_cast<std::size_t>(output.dtype)];
  const std::int32_t panels = divide_up(matrix.out_features(), kPanelColumns);
  const Division division(input.rows, panels, team_.size());
  team_.take_turns(team_.size(), division.num_units(), [&](std::int32_t unit) {
    const auto first_row = unit / division.num_chunks * division.block_rows;
    const std::int64_t chunk = unit % division.num_chunks;
    ProductTask task;
    task.cols = cols;
    task.panels = matrix.panels();
    task.column_scales = matrix.scales();
    task.bias = matrix.bias();
    task.num_columns = matrix.out_features();
    task.output_stride = output.cols;
    task.rows = bytes + static_cast<std::size_t>(first_row) * width;
    task.row_scales = scales_.data() + first_row;
    task.num_rows = std::min(division.block_rows, input.rows - first_row);
    // A scanned block belongs to one chunk.
    const std::int32_t unit_panels = scan == nullptr ? 1 : kScanPanels;
    const std::int64_t units = divide_up(panels, unit_panels);
    const auto boundary = [&](std::int64_t part) {
      return std::min(panels,
                      static_cast<std::int32_t>(part * units / division.num_chunks) * unit_panels);
    };
    task.first_panel = boundary(chunk);
    task.end_panel = boundary(chunk + 1);
    if (task.first_panel == task.end_panel) return;
    task.output = static_cast<std::byte*>(output.data) +
                  static_cast<std::size_t>(first_row) * output.row_bytes();
    multiply(task);
    if (scan == nullptr) return;
    const std::int32_t first_column = task.first_panel * kPanelColumns;
    const std::int32_t end_column = std::min(task.end_panel * kPanelColumns, matrix.out_features());
    for (std::int32_t row = first_row; row < first_row + task.num_rows; ++row) {
      const std::span<const float> logits(output.row<float>(row) + first_column,
                                          output.row<float>(row) + end_column);
      scan_blocks(logits,
                  scan->row(row).subspan(static_cast<std::size_t>(first_column) / kScanBlock));
    }
  });
}

void Int8Gemm::reserve_block(const Int8Matrix& matrix) {
  const auto width = static_cast<std::size_t>(matrix.in_features());
  blocks_.resize(static_cast<std::size_t>(team_.size()));
  for (Block& block : blocks_) {
    reserve(&block.bytes, RowChain::kBlockRows * width);
    reserve(&block.work, width * sizeof(float));
    block.scales.resize(RowChain::kBlockRows);
  }
}

void Int8Gemm::run_block(const Tensor& input, const Int8Matrix& matrix, const Tensor& output,
                         bool accumulate, std::int32_t first, std::int32_t count,
                         std::int32_t thread) {
  Block& block = blocks_[static_cast<std::size_t>(thread)];
  const auto quantize = kernels_.quantize_row[static_cast<std::size_t>(input.dtype)];
  auto* bytes = static_cast<std::int8_t*>(block.bytes->data());
  auto* work = static_cast<float*>(block.work->data());
  for (std::int32_t i = 0; i < count; ++i) {
    quantize(static_cast<const std::byte*>(input.data) +
                 static_cast<std::size_t>(first + i) * input.row_bytes(),
             input.cols, work, bytes + std::int64_t{i} * input.cols,
             &block.scales[static_cast<std::size_t>(i)]);
  }
  ProductTask task;
  task.rows = bytes;
  task.row_scales = block.scales.data();
  task.num_rows = count;
  task.cols = matrix.in_features();
  task.panels = matrix.panels();
  task.end_panel = divide_up(matrix.out_features(), kPanelColumns);
  task.column_scales = matrix.scales();
  task.bias = matrix.bias();
  task.num_columns = matrix.out_features();
  task.output =
      static_cast<std::byte*>(output.data) + static_cast<std::size_t>(first) * output.row_bytes();
  task.output_stride = output.cols;
  accumulate ? kernels_.multiply_rows_add(task)
             : kernels_.multiply_rows[static_cast<std::size_t>(output.dtype)](task);
}

std::string Int8Gemm::implementation() const {
  return std::string("own int8 ") + instruction_set_name(kernels_.set);
}

}  // namespace batchmill
