#include "engine/block_pool.h"

#include <cassert>

namespace batchmill {

BlockRef BlockRef::share() const {
  if (pool_ != nullptr) pool_->add_reference(id_);
  return BlockRef(pool_, id_);
}

void BlockRef::reset() {
  if (pool_ != nullptr) pool_->drop_reference(id_);
  pool_ = nullptr;
  id_ = kNoBlock;
}

BlockPool::BlockPool(std::int32_t num_blocks)
    : ref_counts_(index(num_blocks), 0), cached_(index(num_blocks), 0) {
  free_.reserve(index(num_blocks));
  for (BlockId id = num_blocks - 1; id >= 0; --id) free_.push_back(id);
}

BlockPool::~BlockPool() { assert(num_free() == num_blocks()); }

BlockRef BlockPool::allocate() {
  if (free_.empty()) return {};
  const BlockId id = free_.back();
  free_.pop_back();
  assert(ref_count(id) == 0 && !cached_[index(id)]);
  ref_counts_[index(id)] = 1;
  return BlockRef(this, id);
}

void BlockPool::set_cached(BlockId id, bool cached) {
  const bool before = is_evictable(id);
  cached_[index(id)] = cached;
  num_evictable_ += static_cast<int>(is_evictable(id)) - static_cast<int>(before);
}

void BlockPool::add_reference(BlockId id) {
  assert(ref_count(id) > 0);
  if (is_evictable(id)) --num_evictable_;
  ++ref_counts_[index(id)];
}

void BlockPool::drop_reference(BlockId id) {
  assert(ref_count(id) > 0);
  if (is_evictable(id)) --num_evictable_;
  if (--ref_counts_[index(id)] == 0) {
    assert(!cached_[index(id)]);
    free_.push_back(id);
  } else if (is_evictable(id)) {
    ++num_evictable_;
  }
}

}  // namespace batchmill
