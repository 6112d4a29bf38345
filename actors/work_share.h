// Splits a step's time over the requests that shared it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace batchmill {

// Divides `total` in proportion to `weights` by largest remainder: whole parts that add up to
// `total` exactly (ties go to the earlier weight). All zero when no weight is positive.
std::vector<std::uint64_t> divide_by_largest_remainder(std::uint64_t total,
                                                       std::span<const std::uint64_t> weights);

}  // namespace batchmill
