#include "actors/heap.h"

#ifdef __GLIBC__
#include <malloc.h>
#endif

#include <algorithm>
#include <fstream>
#include <string>

namespace batchmill {
namespace {

constexpr int kNumHeaps = 2;
// Less than this is not worth the page faults of taking it again.
[[maybe_unused]] constexpr std::int64_t kKeptBytes = 64 << 20;

#ifdef __GLIBC__
// Private memory that is resident: heaps, and what was mapped besides (weights, stacks).
std::int64_t resident_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("RssAnon:")) return std::stoll(line.substr(8)) * 1024;
  }
  return 0;
}

// Free parts of the heaps, and whatever else does not change from one second to the next.
std::int64_t spare_bytes() {
  const auto info = ::mallinfo2();
  return resident_bytes() - static_cast<std::int64_t>(info.uordblks + info.hblkhd);
}
#endif

}  // namespace

void Heap::keep_few() {
#ifdef __GLIBC__
  ::mallopt(M_ARENA_MAX, kNumHeaps);
#endif
}

void Heap::give_back() {
#ifdef __GLIBC__
  std::int64_t spare = spare_bytes();
  if (spare > spare_bytes_ + kKeptBytes) {
    ::malloc_trim(0);
    spare = spare_bytes();
    spare_bytes_ = spare;
  }
  spare_bytes_ = std::min(spare_bytes_, spare);
#endif
}

}  // namespace batchmill
