// What an int8 cache mixes queries and keys by, in a plain loop.
#pragma once

#include <bit>
#include <cstddef>
#include <vector>

namespace batchmill::testing {

// The row times the Hadamard matrix of its size, a power of two. Twice: the row times its size.
inline std::vector<double> times_hadamard(const std::vector<double>& row) {
  std::vector<double> result(row.size());
  for (std::size_t i = 0; i < row.size(); ++i) {
    for (std::size_t j = 0; j < row.size(); ++j) {
      result[i] += std::popcount(i & j) % 2 == 0 ? row[j] : -row[j];
    }
  }
  return result;
}

}  // namespace batchmill::testing
