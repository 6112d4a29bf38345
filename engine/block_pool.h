// The KV blocks of one device as numbers: which are free, and how many owners each has. Holds ids
// only, no memory. One owner thread (the engine's); must outlive every BlockRef it gave out.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "engine/types.h"

namespace batchmill {

class BlockPool;

// One counted reference to a block. The block is free again when its last reference ends.
class BlockRef {
 public:
  BlockRef() = default;
  BlockRef(BlockRef&& other) noexcept
      : pool_(std::exchange(other.pool_, nullptr)), id_(std::exchange(other.id_, kNoBlock)) {}
  BlockRef& operator=(BlockRef&& other) noexcept {
    std::swap(pool_, other.pool_);
    std::swap(id_, other.id_);
    other.reset();
    return *this;
  }
  BlockRef(const BlockRef&) = delete;
  BlockRef& operator=(const BlockRef&) = delete;
  ~BlockRef() { reset(); }

  // Another reference to the same block: sharing is always written out.
  BlockRef share() const;
  void reset();

  BlockId id() const { return id_; }
  explicit operator bool() const { return pool_ != nullptr; }

 private:
  friend class BlockPool;
  BlockRef(BlockPool* pool, BlockId id) : pool_(pool), id_(id) {}

  BlockPool* pool_ = nullptr;
  BlockId id_ = kNoBlock;
};

class BlockPool {
 public:
  explicit BlockPool(std::int32_t num_blocks);
  ~BlockPool();
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;

  // A block without other owners; an empty reference when none is free.
  BlockRef allocate();

  // Says that one of the block's references is the prefix tree's, or no longer is.
  void set_cached(BlockId id, bool cached);

  std::int32_t ref_count(BlockId id) const { return ref_counts_[index(id)]; }
  std::int32_t num_blocks() const { return static_cast<std::int32_t>(ref_counts_.size()); }
  std::int32_t num_free() const { return static_cast<std::int32_t>(free_.size()); }
  // Blocks whose only reference is the prefix tree's.
  std::int32_t num_evictable() const { return num_evictable_; }
  bool is_evictable(BlockId id) const { return cached_[index(id)] && ref_count(id) == 1; }

 private:
  friend class BlockRef;
  static std::size_t index(BlockId id) { return static_cast<std::size_t>(id); }
  void add_reference(BlockId id);
  void drop_reference(BlockId id);

  std::vector<std::int32_t> ref_counts_;  // [num_blocks]
  std::vector<std::uint8_t> cached_;  // [num_blocks] one reference is the tree's
  std::vector<BlockId> free_;  // a stack
  std::int32_t num_evictable_ = 0;
};

}  // namespace batchmill
