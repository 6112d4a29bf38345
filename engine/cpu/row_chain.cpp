#include "engine/cpu/row_chain.h"

#include <algorithm>
#include <atomic>

namespace batchmill {
namespace {

constexpr std::int32_t kTileRows = 6;  // of the widest product kernel
constexpr std::int32_t kMinBlockRows = 4 * kTileRows;
constexpr std::size_t kLinks = 64;  // more than a layer has

std::int32_t divide_up(std::int32_t value, std::int32_t divisor) {
  return (value + divisor - 1) / divisor;
}

}  // namespace

RowChain::RowChain(ThreadTeam* team) : team_(*team) { links_.reserve(kLinks); }

std::int32_t RowChain::block_rows(std::int32_t rows_left) const {
  const std::int32_t threads = team_.size();
  if (num_rows_ <= 2 * threads * kBlockRows) {  // the same for all
    return divide_up(num_rows_, threads * divide_up(num_rows_, threads * kBlockRows));
  }
  // Small ones at the end, so that threads end together.
  const std::int32_t share = divide_up(rows_left, 2 * threads * kTileRows) * kTileRows;
  return std::clamp(share, kMinBlockRows, kBlockRows);
}

void RowChain::run() {
  std::atomic<std::int32_t> next{0};
  team_.run(team_.size(), [&](std::int32_t thread) {
    while (true) {
      std::int32_t first = next.load(std::memory_order_relaxed);
      std::int32_t count = 0;
      do {
        if (first >= num_rows_) return;
        count = std::min(block_rows(num_rows_ - first), num_rows_ - first);
      } while (!next.compare_exchange_weak(first, first + count, std::memory_order_relaxed));
      for (const Link& link : links_) link.call(link.state, first, count, thread);
    }
  });
  links_.clear();
}

}  // namespace batchmill
