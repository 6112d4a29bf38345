// What the int8 products agree on: the rotation of a row and the layout of a packed matrix.
//
// A row of K channels is rotated in groups of 64 (or of the largest power of two that divides K): a
// group takes neighbours from each of `parts` equal parts of the row, so that it mixes channels
// that lie far apart. The rotation is the Hadamard matrix, not normalised; it is its own inverse
// but for the factor `size`.
//
// A packed matrix is panels of 16 outputs, [K ÷ 4][16][4] bytes each: weight + 128.
#pragma once

#include <algorithm>
#include <cstdint>

namespace batchmill {

inline constexpr std::int32_t kPanelColumns = 16;
inline constexpr std::int32_t kByteGroup = 4;  // bytes that one instruction sums
inline constexpr std::int32_t kWeightOffset = 128;
inline constexpr std::int32_t kLargestByte = 127;

struct RowRotation {
  std::int32_t parts = 1;
  std::int32_t neighbours = 1;  // per part
  constexpr std::int32_t size() const { return parts * neighbours; }
};

constexpr RowRotation row_rotation(std::int32_t cols) {
  constexpr std::int32_t kSize = 64;
  const std::int32_t vectors = cols / kPanelColumns;  // a whole number
  const std::int32_t parts = std::min(kSize, vectors & -vectors);
  return {parts, std::min(kPanelColumns, kSize / parts)};
}

constexpr std::int64_t packed_weight_index(std::int32_t row, std::int32_t col, std::int32_t cols) {
  const std::int64_t panel = std::int64_t{row / kPanelColumns} * kPanelColumns * cols;
  return panel +
         (std::int64_t{col / kByteGroup} * kPanelColumns + row % kPanelColumns) * kByteGroup +
         col % kByteGroup;
}

}  // namespace batchmill
