// Splits a step's time over the requests that shared it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace batchmill {

// Keeps its memory between divisions. One thread.
class LargestRemainder {
 public:
  // Divides `total` in proportion to `weights` by largest remainder: whole parts that add up to
  // `total` exactly (ties go to the earlier weight). All zero when no weight is positive. Valid
  // until the next division.
  std::span<const std::uint64_t> divide(std::uint64_t total,
                                        std::span<const std::uint64_t> weights);

 private:
  std::vector<std::uint64_t> parts_;
  std::vector<std::uint64_t> remainders_;
  std::vector<std::size_t> order_;
};

}  // namespace batchmill
