#include "cuda/emulation/block_runner.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <boost/context/detail/fcontext.hpp>
#include <cassert>
#include <cstring>
#include <memory>
#include <new>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "cuda/emulation/devices.h"
#include "cuda/emulation/sanitizers.h"

// Compiled without instrumentation: what this file does to lanes' memory, hardware does.
namespace batchmill::emulation {
namespace {

namespace context = boost::context::detail;

constexpr std::size_t kStackBytes = 256 << 10;
constexpr std::size_t kGuardBytes = 64;  // beside each shared array
constexpr unsigned char kGuardByte = 0xA5;
constexpr std::uint64_t kGuardWord = 0xA5A5A5A5A5A5A5A5;
constexpr std::uint64_t kNanWord = ~std::uint64_t{0};  // NaN in every float format
constexpr std::size_t kArenaBytes = kMaxStaticSharedBytes + (8 << 10);
static_assert(kArenaBytes % 128 == 0);
constexpr std::uint32_t kWholeWarp = ~0u;

struct Copy {
  void* target;
  const void* source;
  std::size_t bytes;
  bool is_valid;
};

struct Lane {
  context::fcontext_t context = nullptr;
  uint3 index{};
  unsigned rank = 0;
  char* stack = nullptr;
  FiberState fiber;
  Site site{"", 0};
  unsigned block_phase = 0;
  unsigned warp_phase = 0;
  std::vector<Copy> copies;
  std::vector<std::size_t> groups;  // copies before the end of each committed group
};

struct Warp {
  std::uint32_t ready = 0;
  std::uint32_t in_barrier = 0;
  std::uint32_t arrived = 0;  // at a collective
  std::uint32_t ended = 0;
  void* records[kWarpLanes] = {};
  Site site{"", 0};
  char sync[2] = {};
};

struct SharedArray {
  const void* tag;
  unsigned char* begin;
  std::size_t bytes;
};

// An array's room with a guard on both sides.
constexpr std::size_t guarded_bytes(std::size_t bytes) {
  return (bytes + 2 * kGuardBytes + 15) / 16 * 16;
}

// No call of memset, which a sanitizer would take for the lane's own access.
void fill(unsigned char* begin, std::uint64_t word, std::size_t bytes) {
  auto* words = reinterpret_cast<volatile std::uint64_t*>(begin);
  for (std::size_t i = 0; i < bytes / 8; ++i) words[i] = word;
}

class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed * 0x9E3779B97F4A7C15ull + 1) {}
  std::uint32_t below(std::uint32_t bound) {
    state_ = state_ * 6364136223846793005ull + 1442695040888963407ull;
    return static_cast<std::uint32_t>(((state_ >> 33) * bound) >> 31);
  }

 private:
  std::uint64_t state_;
};

class Runner {
 public:
  void run(dim3 grid, dim3 block, std::size_t dynamic_bytes, void (*kernel)(void*),
           void* arguments);
  void synchronize_block(Site site);
  void run_warp_operation(void* record, WarpOperation operation, Site site, bool orders_memory);
  void* shared_array(const void* tag, std::size_t bytes);
  void* dynamic_shared() const { return dynamic_; }
  Lane& lane() { return *current_; }
  [[noreturn]] void fail(const char* what, Site site, const Site* other = nullptr);
  void end_lane();

  Statistics statistics;
  std::uint64_t seed = 0;

 private:
  Warp& warp() { return warps_[current_->rank / kWarpLanes]; }
  std::uint32_t bit() const { return 1u << current_->rank % kWarpLanes; }
  void run_block(unsigned block, dim3 grid, dim3 shape);
  void schedule();
  void prepare_lanes(dim3 shape);
  void switch_to(Lane* next, bool for_good = false);
  Lane* next_of(Warp& warp);
  unsigned char* lay_out_array(unsigned char* memory, const void* tag, std::size_t bytes);
  void check_guards();
  void release_shared();

  static void enter_lane(context::transfer_t from);

  std::vector<std::unique_ptr<Lane>> lanes_;
  std::vector<Warp> warps_;
  Lane main_;
  Lane* current_ = &main_;
  unsigned num_lanes_ = 0;
  unsigned live_ = 0;
  unsigned in_barrier_ = 0;
  Site barrier_site_{"", 0};
  std::vector<SharedArray> arrays_;
  unsigned char* arena_ = nullptr;  // of the block's shared arrays, then its dynamic memory
  std::size_t static_used_ = 0;
  std::size_t static_bytes_ = 0;
  std::size_t dynamic_bytes_ = 0;
  unsigned char* dynamic_ = nullptr;
  std::vector<void*> retired_;  // shared memory of earlier blocks of the grid
  void (*kernel_)(void*) = nullptr;
  void* arguments_ = nullptr;
  Random random_{0};
  std::string failure_;
  char start_ = 0;  // synchronisation objects
  char end_ = 0;
  char block_sync_[2] = {};
};

Runner& runner() {
  static thread_local Runner runner;
  return runner;
}

// The lane that runs last has its own place in `from.data`.
void Runner::enter_lane(context::transfer_t from) {
  finish_switch(nullptr);
  static_cast<Lane*>(from.data)->context = from.fctx;
  Runner& self = runner();
  acquire(&self.start_);
  self.kernel_(self.arguments_);
  self.end_lane();
  std::abort();  // nobody switches back to an ended lane
}

void Runner::switch_to(Lane* next, bool for_good) {
  Lane* self = current_;
  current_ = next;
  threadIdx = next->index;
  start_switch(for_good ? nullptr : &self->fiber, next->fiber, next->stack, kStackBytes);
  const context::transfer_t from = context::jump_fcontext(next->context, self);
  finish_switch(&self->fiber);
  static_cast<Lane*>(from.data)->context = from.fctx;
}

// A lane of the warp that can go on, or the scheduler.
Lane* Runner::next_of(Warp& warp) {
  if (warp.ready == 0) return &main_;
  std::uint32_t ready = warp.ready;
  if (seed != 0) {
    for (std::uint32_t skip = random_.below(std::popcount(ready)); skip > 0; --skip) {
      ready &= ready - 1;
    }
  }
  const auto warp_index = static_cast<std::size_t>(&warp - warps_.data());
  return lanes_[warp_index * kWarpLanes + std::countr_zero(ready)].get();
}

void Runner::fail(const char* what, Site site, const Site* other) {
  const auto place = [](const Site& at) {
    return std::string(at.file) + ":" + std::to_string(at.line);
  };
  const auto point = [](unsigned x, unsigned y, unsigned z) {
    return "(" + std::to_string(x) + ", " + std::to_string(y) + ", " + std::to_string(z) + ")";
  };
  failure_ = std::string(what) + ": block " + point(blockIdx.x, blockIdx.y, blockIdx.z) +
             " thread " + point(threadIdx.x, threadIdx.y, threadIdx.z) + " at " + place(site);
  if (other != nullptr) failure_ += ", others at " + place(*other);
  if (current_ == &main_) throw EmulationError(failure_);
  switch_to(&main_, true);
  std::abort();
}

void Runner::end_lane() {
  if (!current_->copies.empty())
    fail("a thread ends before its asynchronous copies", current_->site);
  Warp& own = warp();
  own.ready &= ~bit();
  own.ended |= bit();
  --live_;
  if (in_barrier_ > 0) {
    fail("a thread ends while others wait at __syncthreads", current_->site, &barrier_site_);
  }
  if (own.arrived != 0) {
    fail("a thread ends while its warp waits for it", current_->site, &own.site);
  }
  release(&end_);
  switch_to(next_of(own), true);
}

void Runner::synchronize_block(Site site) {
  Lane& self = *current_;
  self.site = site;
  if (live_ != num_lanes_) fail("__syncthreads after a thread of the block has ended", site);
  if (in_barrier_ == 0) {
    barrier_site_ = site;
  } else if (barrier_site_.line != site.line || barrier_site_.file != site.file) {
    fail("threads of one block wait at different __syncthreads", site, &barrier_site_);
  }
  // Two objects in turn: a late leaver must not acquire what the next phase releases.
  char* sync = &block_sync_[self.block_phase ^= 1];
  release(sync);
  Warp& own = warp();
  if (++in_barrier_ == num_lanes_) {
    in_barrier_ = 0;
    for (Warp& other : warps_) other.ready |= std::exchange(other.in_barrier, 0u);
  } else {
    own.ready &= ~bit();
    own.in_barrier |= bit();
    switch_to(next_of(own));
  }
  acquire(sync);
}

void Runner::run_warp_operation(void* record, WarpOperation operation, Site site,
                                bool orders_memory) {
  Lane& self = *current_;
  self.site = site;
  Warp& own = warp();
  if (own.ended != 0) fail("a collective after a thread of the warp has ended", site);
  if (own.arrived == 0) {
    own.site = site;
  } else if (own.site.line != site.line || own.site.file != site.file) {
    fail("threads of one warp are in different collectives", site, &own.site);
  }
  char* sync = nullptr;
  if (orders_memory) {
    sync = &own.sync[self.warp_phase ^= 1];
    release(sync);
  }
  own.records[self.rank % kWarpLanes] = record;
  own.arrived |= bit();
  if (own.arrived == kWholeWarp) {
    if (operation != nullptr) operation(own.records);
    own.arrived = 0;
    own.ready = kWholeWarp;
  } else {
    own.ready &= ~bit();
    switch_to(next_of(own));
  }
  if (orders_memory) acquire(sync);
}

// A guard, the array, and at least a guard again, at `memory`; returns the array's begin.
unsigned char* Runner::lay_out_array(unsigned char* memory, const void* tag, std::size_t bytes) {
  unsigned char* begin = memory + kGuardBytes;
  const std::size_t end = guarded_bytes(bytes) - kGuardBytes;
  fill(memory, kGuardWord, kGuardBytes);
  fill(begin, kNanWord, bytes / 8 * 8);
  fill(begin + bytes / 8 * 8, kGuardWord, end - bytes / 8 * 8);
  for (std::size_t i = bytes / 8 * 8; i < bytes; ++i) begin[i] = 0xFF;
  forbid(memory, kGuardBytes);
  forbid(begin + bytes, end - bytes);
  arrays_.push_back({tag, begin, bytes});
  return begin;
}

void* Runner::shared_array(const void* tag, std::size_t bytes) {
  for (const SharedArray& array : arrays_) {
    if (array.tag == tag) return array.begin;
  }
  static_bytes_ += bytes;
  if (static_bytes_ > kMaxStaticSharedBytes ||
      static_bytes_ + dynamic_bytes_ > shared_bytes_of_block() ||
      static_used_ + guarded_bytes(bytes) > kArenaBytes) {
    fail("too much shared memory", current_->site);
  }
  unsigned char* memory = arena_ + static_used_;
  static_used_ += guarded_bytes(bytes);
  return lay_out_array(memory, tag, bytes);
}

void Runner::check_guards() {
  for (const SharedArray& array : arrays_) {
    permit(array.begin - kGuardBytes, kGuardBytes);
    permit(array.begin + array.bytes, kGuardBytes);
    const auto is_guard = [](unsigned char byte) { return byte == kGuardByte; };
    if (!std::all_of(array.begin - kGuardBytes, array.begin, is_guard) ||
        !std::all_of(array.begin + array.bytes, array.begin + array.bytes + kGuardBytes,
                     is_guard)) {
      fail("a write beside a shared array", {"block", static_cast<int>(blockIdx.x)});
    }
  }
}

void Runner::release_shared() {
  for (void* memory : retired_) std::free(memory);
  retired_.clear();
  arrays_.clear();
}

void Runner::prepare_lanes(dim3 shape) {
  const unsigned num_warps = num_lanes_ / kWarpLanes;
  warps_.assign(num_warps, Warp{});
  for (Warp& warp : warps_) warp.ready = kWholeWarp;
  for (unsigned i = 0; i < num_lanes_; ++i) {
    Lane& lane = *lanes_[i];
    lane.context = context::make_fcontext(lane.stack + kStackBytes, kStackBytes, enter_lane);
    lane.index = {i % shape.x, i / shape.x % shape.y, i / (shape.x * shape.y)};
    lane.block_phase = lane.warp_phase = 0;
    lane.copies.clear();
    lane.groups.clear();
  }
}

void Runner::run_block(unsigned block, dim3 grid, dim3 shape) {
  blockIdx = {block % grid.x, block / grid.x % grid.y, block / (grid.x * grid.y)};
  prepare_lanes(shape);
  live_ = num_lanes_;
  in_barrier_ = 0;
  arrays_.clear();
  static_bytes_ = static_used_ = 0;
  arena_ = static_cast<unsigned char*>(
      std::aligned_alloc(128, (kArenaBytes + guarded_bytes(dynamic_bytes_) + 127) / 128 * 128));
  if (arena_ == nullptr) throw std::bad_alloc();
  retired_.push_back(arena_);
  // The arena's end leaves the dynamic memory on a boundary of 128 bytes.
  dynamic_ = dynamic_bytes_ > 0
                 ? lay_out_array(arena_ + kArenaBytes - kGuardBytes, this, dynamic_bytes_)
                 : nullptr;
  release(&start_);  // what came before the block happened before each of its threads
  while (live_ > 0) {
    schedule();
    if (!failure_.empty()) throw EmulationError(std::exchange(failure_, {}));
  }
  check_guards();
  // Freeing memory would order this block's accesses before the next one's.
  if (!kSeesRaces) release_shared();
}

void Runner::schedule() {
  const auto num_warps = static_cast<unsigned>(warps_.size());
  const unsigned first = seed != 0 ? random_.below(num_warps) : 0;
  bool any = false;
  for (unsigned k = 0; k < num_warps && failure_.empty(); ++k) {
    Warp& warp = warps_[(first + k) % num_warps];
    if (warp.ready == 0) continue;
    any = true;
    switch_to(next_of(warp));
  }
  if (any) return;
  for (const auto& lane : lanes_) {
    if (warps_[lane->rank / kWarpLanes].ended >> lane->rank % kWarpLanes & 1) continue;
    threadIdx = lane->index;
    fail("no thread of the block can go on", lane->site,
         in_barrier_ > 0 ? &barrier_site_ : nullptr);
  }
}

void Runner::run(dim3 grid, dim3 block, std::size_t dynamic_bytes, void (*kernel)(void*),
                 void* arguments) {
  assert(current_ == &main_ && "a kernel launched from a kernel");
  num_lanes_ = block.x * block.y * block.z;
  const std::uint64_t num_blocks = std::uint64_t{grid.x} * grid.y * grid.z;
  if (num_lanes_ == 0 || num_lanes_ > kMaxBlockLanes || num_lanes_ % kWarpLanes != 0 ||
      num_blocks == 0 || num_blocks > 1u << 24 || grid.y > 65535 || grid.z > 65535 ||
      dynamic_bytes > shared_bytes_of_block()) {
    throw EmulationError("a launch of " + std::to_string(num_blocks) + " blocks of " +
                         std::to_string(num_lanes_) + " threads with " +
                         std::to_string(dynamic_bytes) + " bytes of shared memory");
  }
  while (lanes_.size() < num_lanes_) {
    auto lane = std::make_unique<Lane>();
    void* stack = mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (stack == MAP_FAILED) throw std::bad_alloc();
    lane->stack = static_cast<char*>(stack);
    lane->rank = static_cast<unsigned>(lanes_.size());
    make_fiber(&lane->fiber);
    lanes_.push_back(std::move(lane));
  }
  adopt_thread(&main_.fiber);
  gridDim = grid;
  blockDim = block;
  dynamic_bytes_ = dynamic_bytes;
  kernel_ = kernel;
  arguments_ = arguments;
  std::vector<unsigned> order(num_blocks);
  std::iota(order.begin(), order.end(), 0u);
  if (seed != 0) {
    random_ = Random(seed++);
    for (std::size_t i = order.size(); i > 1; --i) {
      std::swap(order[i - 1], order[random_.below(static_cast<std::uint32_t>(i))]);
    }
  }
  try {
    for (const unsigned index : order) run_block(index, grid, block);
  } catch (const EmulationError&) {
    failure_.clear();
    acquire(&end_);
    release_shared();
    for (const auto& lane : lanes_) permit(lane->stack, kStackBytes);
    throw;
  }
  acquire(&end_);
  release_shared();
}

}  // namespace

Statistics& statistics() { return runner().statistics; }
void set_schedule_seed(std::uint64_t seed) { runner().seed = seed; }

void run_grid(dim3 grid, dim3 block, std::size_t dynamic_shared_bytes, void (*kernel)(void*),
              void* arguments) {
  runner().run(grid, block, dynamic_shared_bytes, kernel, arguments);
}

void synchronize_block(Site site) { runner().synchronize_block(site); }

void run_warp_operation(void* record, WarpOperation operation, Site site) {
  runner().run_warp_operation(record, operation, site, false);
}
void synchronize_warp(Site site) { runner().run_warp_operation(nullptr, nullptr, site, true); }

void* shared_array(const void* tag, std::size_t bytes) { return runner().shared_array(tag, bytes); }
void* dynamic_shared() { return runner().dynamic_shared(); }
unsigned lane_of_warp() { return runner().lane().rank % kWarpLanes; }
void fail(const char* what, Site site) { runner().fail(what, site); }

void check_alignment(const void* address, std::size_t bytes, Site site) {
  if (reinterpret_cast<std::uintptr_t>(address) % bytes != 0) fail("a misaligned access", site);
}

void start_copy(void* shared, const void* global, std::size_t bytes, bool is_valid, Site site) {
  check_waited(site);
  check_alignment(shared, bytes, site);
  check_alignment(global, bytes, site);
  note_write(shared, bytes);
  std::memset(shared, 0xFF, bytes);
  Lane& lane = runner().lane();
  lane.site = site;
  lane.copies.push_back({shared, global, bytes, is_valid});
}

void commit_copies(Site site) {
  Lane& lane = runner().lane();
  lane.site = site;
  lane.groups.push_back(lane.copies.size());
}

void wait_for_copies(unsigned pending_groups) {
  Lane& lane = runner().lane();
  if (lane.groups.size() <= pending_groups) return;
  const auto landed = static_cast<std::ptrdiff_t>(lane.groups.size() - pending_groups);
  const std::size_t count = lane.groups[static_cast<std::size_t>(landed) - 1];
  for (std::size_t i = 0; i < count; ++i) {
    const Copy& copy = lane.copies[i];
    note_write(copy.target, copy.bytes);
    if (copy.is_valid) {
      note_read(copy.source, copy.bytes);
      std::memcpy(copy.target, copy.source, copy.bytes);
    } else {
      std::memset(copy.target, 0, copy.bytes);
    }
  }
  lane.copies.erase(lane.copies.begin(), lane.copies.begin() + static_cast<std::ptrdiff_t>(count));
  lane.groups.erase(lane.groups.begin(), lane.groups.begin() + landed);
  for (std::size_t& end : lane.groups) end -= count;
}

}  // namespace batchmill::emulation
