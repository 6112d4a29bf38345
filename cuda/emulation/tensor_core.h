// Asynchronous copies and matrix instructions of a warp, as cuda/devrt_nvcc.h has them.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>

#include "cuda/emulation/block_runner.h"

namespace batchmill {

inline void copy_async16(void* shared, const void* global, bool is_valid, BATCHMILL_SITE) {
  emulation::start_copy(shared, global, 16, is_valid, site);
}
inline void copy_async4(void* shared, const void* global, bool is_valid, BATCHMILL_SITE) {
  emulation::start_copy(shared, global, 4, is_valid, site);
}
inline void commit_copies(BATCHMILL_SITE) { emulation::commit_copies(site); }
template <int kPendingGroups>
void wait_for_copies() {
  emulation::wait_for_copies(kPendingGroups);
}

namespace emulation {

struct MatrixLoad {
  const unsigned char* row;  // lane 8 m + r: row r of matrix m
  std::uint32_t result[4];
};

// The 16-byte lanes of shared memory repeat after 128 bytes; rows of one matrix that fall on the
// same lane are fetched one after the other.
BATCHMILL_HARDWARE inline void count_matrix_load(void* const* records) {
  for (int m = 0; m < 4; ++m) {
    int rows[8] = {};
    int most = 0;
    for (int r = 0; r < 8; ++r) {
      const auto address =
          reinterpret_cast<std::uintptr_t>(static_cast<MatrixLoad*>(records[m * 8 + r])->row);
      most = std::max(most, ++rows[address / 16 % 8]);
    }
    statistics().bank_conflicts += static_cast<std::uint64_t>(most - 1);
  }
  ++statistics().matrix_loads;
}

BATCHMILL_HARDWARE inline void load_rows(void* const* records) {
  count_matrix_load(records);
  for (int lane = 0; lane < kWarpLanes; ++lane) {
    auto* load = static_cast<MatrixLoad*>(records[lane]);
    for (int m = 0; m < 4; ++m) {
      const unsigned char* row = static_cast<MatrixLoad*>(records[m * 8 + lane / 4])->row;
      load->result[m] = *reinterpret_cast<const std::uint32_t*>(row + lane % 4 * 4);
    }
  }
}

BATCHMILL_HARDWARE inline void load_columns(void* const* records) {
  count_matrix_load(records);
  for (int lane = 0; lane < kWarpLanes; ++lane) {
    auto* load = static_cast<MatrixLoad*>(records[lane]);
    for (int m = 0; m < 4; ++m) {
      std::uint32_t pair = 0;
      for (int i = 0; i < 2; ++i) {
        const unsigned char* row = static_cast<MatrixLoad*>(records[m * 8 + lane % 4 * 2 + i])->row;
        const std::uint32_t half = *reinterpret_cast<const std::uint16_t*>(row + lane / 4 * 2);
        pair |= half << (16 * i);
      }
      load->result[m] = pair;
    }
  }
}

// In each lane's own name: it is this access that sanitizers hold against others.
inline void touch_row(const void* row, Site site) {
  check_alignment(row, 16, site);
  const auto* words = static_cast<const volatile std::uint64_t*>(row);
  static_cast<void>(words[0]);
  static_cast<void>(words[1]);
}

BATCHMILL_HARDWARE inline void load_matrices(std::uint32_t (&result)[4], const void* row,
                                             WarpOperation operation, Site site) {
  MatrixLoad load{static_cast<const unsigned char*>(row), {}};
  run_warp_operation(&load, operation, site);
  std::copy_n(load.result, 4, result);
}

struct Product {
  float* sums;
  const std::uint32_t* a;
  std::uint32_t b[2];
};

// C [16, 8] += A [16, 16] · B [16, 8]. Lane 4 g + t holds of C rows g and g + 8, columns 2 t and
// 2 t + 1; of A these rows, columns 2 t, 2 t + 1, and 8 further; of B column g, these as rows.
BATCHMILL_HARDWARE inline void multiply(void* const* records) {
  const auto low = [](std::uint32_t pair) { return std::bit_cast<float>(pair << 16); };
  const auto high = [](std::uint32_t pair) { return std::bit_cast<float>(pair & 0xFFFF0000u); };
  float a[16][16];
  float b[16][8];
  for (int lane = 0; lane < kWarpLanes; ++lane) {
    const auto* own = static_cast<const Product*>(records[lane]);
    const int g = lane / 4;
    const int t = lane % 4 * 2;
    for (int i = 0; i < 4; ++i) {
      const int row = g + i % 2 * 8;
      const int col = t + i / 2 * 8;
      a[row][col] = low(own->a[i]);
      a[row][col + 1] = high(own->a[i]);
    }
    for (int i = 0; i < 2; ++i) {
      b[t + i * 8][g] = low(own->b[i]);
      b[t + i * 8 + 1][g] = high(own->b[i]);
    }
  }
  float c[16][8] = {};
  for (int row = 0; row < 16; ++row) {
    for (int k = 0; k < 16; ++k) {
      for (int col = 0; col < 8; ++col) c[row][col] += a[row][k] * b[k][col];
    }
  }
  for (int lane = 0; lane < kWarpLanes; ++lane) {
    float* sums = static_cast<const Product*>(records[lane])->sums;
    for (int i = 0; i < 4; ++i) sums[i] += c[lane / 4 + i / 2 * 8][lane % 4 * 2 + i % 2];
  }
}

}  // namespace emulation

inline void load_matrices(std::uint32_t (&result)[4], const void* row, BATCHMILL_SITE) {
  emulation::touch_row(row, site);
  emulation::load_matrices(result, row, emulation::load_rows, site);
}
inline void load_matrices_transposed(std::uint32_t (&result)[4], const void* row, BATCHMILL_SITE) {
  emulation::touch_row(row, site);
  emulation::load_matrices(result, row, emulation::load_columns, site);
}
BATCHMILL_HARDWARE inline void multiply_bf16(float (&sums)[4], const std::uint32_t (&a)[4],
                                             std::uint32_t b0, std::uint32_t b1, BATCHMILL_SITE) {
  emulation::Product product{sums, a, {b0, b1}};
  emulation::run_warp_operation(&product, emulation::multiply, site);
}

}  // namespace batchmill
