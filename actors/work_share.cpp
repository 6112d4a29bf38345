#include "actors/work_share.h"

#include <algorithm>
#include <numeric>

namespace batchmill {

std::vector<std::uint64_t> divide_by_largest_remainder(std::uint64_t total,
                                                       std::span<const std::uint64_t> weights) {
  __extension__ using Wide = unsigned __int128;
  std::vector<std::uint64_t> parts(weights.size(), 0);
  const Wide sum = std::accumulate(weights.begin(), weights.end(), Wide{0});
  if (sum == 0) return parts;

  std::vector<std::uint64_t> remainders(weights.size());
  std::uint64_t left = total;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const Wide share = Wide{total} * weights[i];
    parts[i] = static_cast<std::uint64_t>(share / sum);
    remainders[i] = static_cast<std::uint64_t>(share % sum);
    left -= parts[i];
  }
  std::vector<std::size_t> order(weights.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return remainders[a] > remainders[b]; });
  for (std::size_t i = 0; i < left; ++i) ++parts[order[i]];
  return parts;
}

}  // namespace batchmill
