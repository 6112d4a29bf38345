// Gives sequences their KV blocks: reuses prefixes of the tree, takes free blocks, evicts cached
// ones. One owner: the Scheduler; one thread.
//
// A step is planned, then under way on the device, then committed or rolled back. The next step may
// be planned while one is under way: it counts on what that one computes. A device runs steps in
// the order in which they are begun. So a block that is given up may be given out again at once,
// even if steps under way still read it or write to it: its next owner's rows, and copies into it,
// belong to a step that is begun later.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/batch.h"
#include "engine/block_pool.h"
#include "engine/prefix_tree.h"
#include "engine/sequence.h"

namespace batchmill {

class BlockManager {
 public:
  BlockManager(std::int32_t num_blocks, std::int32_t block_size_tokens);

  const BlockPool& pool() const { return pool_; }
  const PrefixTree& tree() const { return tree_; }
  std::int32_t block_size() const { return block_size_; }
  std::int32_t blocks_for(std::int32_t num_tokens) const {
    return (num_tokens + block_size_ - 1) / block_size_;
  }
  // Blocks that can be had without taking one from a running sequence.
  std::int32_t num_available() const { return pool_.num_free() + pool_.num_evictable(); }

  // How many of the first `limit` tokens are in the tree now, counted like match() does.
  std::int32_t cached_tokens(std::span<const TokenId> tokens, std::int32_t limit) const;
  // Available blocks that the sequence, now without any, takes when it grows to `num_tokens`.
  std::int32_t blocks_to_admit(const Sequence& sequence, std::int32_t num_tokens) const;

  // Lets the sequence reuse the longest prefix that the tree has: whole blocks by reference, and
  // the start of one more by a copy. Returns false if it should wait for the next step, because a
  // block that this step computes holds more of its tokens than can be copied now.
  bool match(Sequence& sequence);
  // Makes room for `num_rows` more tokens, or fewer; returns for how many.
  std::int32_t extend(Sequence& sequence, std::int32_t num_rows);
  // Enters the blocks that the scheduled rows fill; `with_tail`: the unfinished last one, too.
  void publish(Sequence& sequence, bool with_tail);

  // The copies that the planned step's rows rely on.
  std::span<const BlockCopy> copies() const { return copies_; }

  // The planned step is under way: its rows count as computed from now on.
  void advance();
  // The oldest step under way has succeeded; or the planned one, if there is none.
  void commit();
  // Steps under way have failed, and with them the planned one: nothing of them has been computed
  // or copied, and each sequence goes back to what was valid before.
  void rollback();

  // Gives up all references. What is in the tree stays until it is evicted; with `keep_tail` the
  // unfinished last block enters it first, which no step under way may write to. Not between
  // publish() and the end of the plan.
  void release(Sequence& sequence, bool keep_tail);

 private:
  struct Touched {
    Sequence* sequence;
    std::int32_t valid_tokens;  // computed before this step
    std::uint64_t step;
  };
  struct Replacement {
    std::uint64_t step;
    Sequence* sequence;
    std::int32_t index;
    BlockRef block;
  };

  BlockRef allocate();
  void touch(Sequence& sequence);
  // The tokens a sequence may take from the tree at most: never its last.
  static std::int32_t reuse_limit(const Sequence& sequence);
  void rewind_cursor(Sequence& sequence, std::int32_t depth) const;
  // Says of the sequence's newest node whether later requests begin with it.
  void mark_wanted(const Sequence& sequence);

  std::int32_t block_size_;
  BlockPool pool_;
  PrefixTree tree_;
  std::vector<Touched> touched_;  // by steps not committed
  std::vector<BlockCopy> copies_;
  std::vector<BlockRef> copy_sources_;  // held while the step is planned
  // Blocks that the tree already had under these tokens: they take the own ones' place once the
  // step has succeeded, so that equal content is held once and a sequence owns all ancestors of its
  // nodes.
  std::vector<Replacement> replacements_;
};

}  // namespace batchmill
