#include "actors/work_share.h"

#include <algorithm>
#include <numeric>

namespace batchmill {

std::span<const std::uint64_t> LargestRemainder::divide(std::uint64_t total,
                                                        std::span<const std::uint64_t> weights) {
  __extension__ using Wide = unsigned __int128;
  parts_.assign(weights.size(), 0);
  const Wide sum = std::accumulate(weights.begin(), weights.end(), Wide{0});
  if (sum == 0) return parts_;

  remainders_.resize(weights.size());
  std::uint64_t left = total;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const Wide share = Wide{total} * weights[i];
    parts_[i] = static_cast<std::uint64_t>(share / sum);
    remainders_[i] = static_cast<std::uint64_t>(share % sum);
    left -= parts_[i];
  }
  order_.resize(weights.size());
  std::iota(order_.begin(), order_.end(), std::size_t{0});
  std::ranges::sort(order_, [&](std::size_t a, std::size_t b) {
    return remainders_[a] != remainders_[b] ? remainders_[a] > remainders_[b] : a < b;
  });
  for (std::size_t i = 0; i < left; ++i) ++parts_[order_[i]];
  return parts_;
}

}  // namespace batchmill
