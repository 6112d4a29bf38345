// A row's best tokens in order, one of each thread of a block: what a draw needs if few tokens hold
// what counts. Of sampler_kernels.cu alone.
#pragma once

#include "cuda/sampler_search.h"

namespace batchmill {

// A token and its key, in the order of preference: larger values first, then lower tokens. Never 0.
using Entry = unsigned long long;

__device__ __forceinline__ Entry entry_of(int token, unsigned key) {
  return static_cast<Entry>(key) << 32 | ~static_cast<unsigned>(token);
}
__device__ __forceinline__ int token_of(Entry entry) {
  return static_cast<int>(~static_cast<unsigned>(entry));
}
__device__ __forceinline__ unsigned key_of_entry(Entry entry) {
  return static_cast<unsigned>(entry >> 32);
}

struct ListMemory {  // shared
  Entry entries[kSampleThreads];
  Mass sums[kSampleWarps];
  Mass total;
  Mass found_running;
  Entry found;
  int count;
};

class BestList {
 public:
  __device__ explicit BestList(ListMemory* memory) : memory_(*memory) {}

  // The first `count` threads give an entry, or 0, the others 0; all hold the one of their own rank
  // then, the best first.
  __device__ void sort(Entry entry, int count) {
    const unsigned thread = threadIdx.x;
    const unsigned most = static_cast<unsigned>(count);
    const bool takes_part = thread / 32 * 32 < most;  // the whole warp
    for (unsigned size = 2; size / 2 < most && size <= kSampleThreads; size *= 2) {
      for (unsigned distance = size / 2; distance > 0; distance /= 2) {
        Entry other = entry;
        if (distance >= 32) {
          memory_.entries[thread] = entry;
          __syncthreads();
          other = memory_.entries[thread ^ distance];
          __syncthreads();
        } else if (takes_part || size > 32) {
          other = __shfl_xor_sync(kWholeWarp, entry, static_cast<int>(distance));
        }
        const bool keeps_larger = ((thread & distance) == 0) == ((thread & size) == 0);
        entry = keeps_larger == (other > entry) ? other : entry;
      }
    }
    entry_ = entry;
  }

  __device__ Entry of_rank(int rank) {
    if (static_cast<int>(threadIdx.x) == rank) memory_.found = entry_;
    __syncthreads();
    const Entry result = memory_.found;
    __syncthreads();
    return result;
  }

  // Replaces the list by the row's entries that are at least the limit, in order. False: there are
  // more than threads. visit(token, key) for all of the row on the way.
  template <typename Visit>
  __device__ bool collect(const RowSearch& search, Entry limit, const Visit& visit) {
    if (threadIdx.x == 0) memory_.count = 0;
    __syncthreads();
    search.each<8>([&](int token, float value) {
      const unsigned key = key_of(value);
      visit(token, key);
      const Entry entry = entry_of(token, key);
      if (entry < limit) return;
      const int at = atomicAdd(&memory_.count, 1);
      if (at < kSampleThreads) memory_.entries[at] = entry;
    });
    __syncthreads();
    const int count = memory_.count;
    const Entry own =
        static_cast<int>(threadIdx.x) < count ? memory_.entries[threadIdx.x] : Entry{0};
    __syncthreads();
    if (count > kSampleThreads) return false;
    count_ = count;
    sort(own, count);
    return true;
  }

  // The sum of all; of this thread's entry it keeps the sum up to it.
  __device__ Mass accumulate(Mass own) {
    const auto warp = threadIdx.x / 32;
    const Mass running = running_total(own);
    if (threadIdx.x % 32 == 31) memory_.sums[warp] = running;
    __syncthreads();
    Mass before = 0;
    Mass total = 0;
    for (unsigned i = 0; i < kSampleWarps; ++i) {
      if (i < warp) before += memory_.sums[i];
      total += memory_.sums[i];
    }
    __syncthreads();
    own_ = own;
    running_ = before + running;
    return total;
  }

  // The entry at which the running sum exceeds the target, and the sum with it.
  struct Place {
    Entry entry;  // 0: it does not
    Mass running;
  };
  __device__ Place find(Mass target) {
    if (threadIdx.x == 0) memory_.found = 0;
    __syncthreads();
    if (own_ != 0 && running_ > target && running_ - own_ <= target) {
      memory_.found = entry_;
      memory_.found_running = running_;
    }
    __syncthreads();
    const Place place{memory_.found, memory_.found_running};
    __syncthreads();
    return place;
  }

  __device__ Mass sum_over_block(Mass own) {
    if (threadIdx.x == 0) memory_.total = 0;
    __syncthreads();
    own = warp_total(own);
    if (threadIdx.x % 32 == 0) atomicAdd(&memory_.total, own);
    __syncthreads();
    const Mass total = memory_.total;
    __syncthreads();
    return total;
  }

  __device__ int count() const { return count_; }
  __device__ Entry entry() const { return entry_; }
  __device__ Mass own_mass() const { return own_; }

 private:
  ListMemory& memory_;
  int count_ = 0;
  Entry entry_ = 0;
  Mass own_ = 0;
  Mass running_ = 0;
};

}  // namespace batchmill
