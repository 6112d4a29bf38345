// Which KV blocks hold which prompt prefixes. An edge is a block's tokens: a node is one block of
// the pool and has that block's id; full blocks can have children, a partly filled block is a leaf
// that others copy from. The tree owns one reference to each of its blocks. Tokens are compared,
// there are no hashes. One owner: the BlockManager; one thread.
//
// Steps have numbers: one is planned, those before it that have not been committed are under way on
// the device. A node is computed by the step that it was inserted for. While that step is planned
// the node is pending: it may be shared by reference, but not copied from. It stays if that step is
// committed, and leaves the tree if it fails.
#pragma once

#include <array>
#include <cstdint>
#include <memory_resource>
#include <span>
#include <vector>

#include "engine/block_pool.h"
#include "engine/types.h"

namespace batchmill {

class PrefixTree {
 public:
  using NodeId = BlockId;

  // What the children of a node share with the start of a token sequence that goes on differently.
  struct PartialMatch {
    NodeId node = kNoBlock;  // the best child whose content is valid now
    std::int32_t num_tokens = 0;  // equal tokens at its start
    std::int32_t pending_tokens = 0;  // the same, of the best pending child
  };

  PrefixTree(BlockPool* pool, std::int32_t block_size_tokens);
  ~PrefixTree();
  PrefixTree(const PrefixTree&) = delete;
  PrefixTree& operator=(const PrefixTree&) = delete;

  NodeId root() const { return static_cast<NodeId>(nodes_.size()) - 1; }
  NodeId parent(NodeId node) const { return at(node).parent; }
  // Full blocks from the root to this node, the node's own included; 0 for the root.
  std::int32_t depth(NodeId node) const { return at(node).depth; }
  bool is_pending(NodeId node) const { return at(node).step == planned_step_; }
  bool is_committed(NodeId node) const { return at(node).step <= committed_step_; }
  bool contains(BlockId block) const { return at(block).parent != kNoBlock; }
  std::int32_t num_nodes() const { return num_nodes_; }
  std::span<const TokenId> tokens(NodeId node) const;
  std::span<const NodeId> children(NodeId node) const { return at(node).children; }

  // The child that is exactly this full block, or kNoBlock.
  NodeId find_full(NodeId parent, std::span<const TokenId> tokens) const;
  // `tokens`: at most one block's.
  PartialMatch find_partial(NodeId parent, std::span<const TokenId> tokens) const;

  // Adds a full block as a pending child and returns it, or the node that already holds these
  // tokens (then `block` is not taken).
  NodeId insert_full(NodeId parent, std::span<const TokenId> tokens, const BlockRef& block);
  // Adds a partly filled block as a leaf, unless a child already starts with these tokens.
  void insert_partial(NodeId parent, std::span<const TokenId> tokens, const BlockRef& block,
                      bool pending);

  BlockRef share(NodeId node);
  // Marks a node as used now.
  void touch(NodeId node) { at(node).last_use = planned_step_; }
  // Whether a later request is known to begin with this node's tokens, or may (as for nodes that
  // nothing was said about). Others are evicted first.
  void set_wanted(NodeId node, bool wanted);

  std::uint64_t planned_step() const { return planned_step_; }
  std::uint64_t committed_step() const { return committed_step_; }
  // The planned step is under way, and the next one is planned.
  void advance() { ++planned_step_; }
  // The oldest step that was not committed has succeeded; advances if it is the planned one.
  void commit();
  // All of them have failed, the planned one too: their nodes leave the tree.
  void rollback();

  // Gives up a leaf that nobody else references: one that is not wanted if there is one, the least
  // recently used of its kind. False if there is none.
  bool evict_one();

 private:
  struct Node {
    NodeId parent = kNoBlock;  // kNoBlock: not in the tree
    std::int32_t depth = 0;
    std::int32_t num_tokens = 0;
    bool wanted = true;
    std::array<bool, 2> queued = {};  // has an entry in that eviction queue
    std::uint64_t step = 0;  // that computes it
    std::uint64_t last_use = 0;  // the step that was planned then
    BlockRef block;
    std::pmr::vector<NodeId> children;  // sorted by their tokens
  };
  struct QueueEntry {
    std::uint64_t last_use;
    NodeId node;
  };

  Node& at(NodeId node) { return nodes_[static_cast<std::size_t>(node)]; }
  const Node& at(NodeId node) const { return nodes_[static_cast<std::size_t>(node)]; }
  std::size_t lower_bound(const Node& parent, std::span<const TokenId> tokens) const;
  void attach(NodeId parent, std::span<const TokenId> tokens, const BlockRef& block, bool pending);
  void remove(NodeId node);
  void queue_if_leaf(NodeId node);
  bool evict_from(bool wanted);

  BlockPool* pool_;
  std::int32_t block_size_;
  // Of the lists of children: what a list gives up serves the next one, so that a tree that has
  // once been full allocates nothing any more.
  std::pmr::unsynchronized_pool_resource memory_;
  std::vector<Node> nodes_;  // [num_blocks + 1], by block id; the last is the root
  std::vector<TokenId> tokens_;  // [num_blocks, block_size]
  std::vector<NodeId> open_;  // not committed, in insertion order: parents before children
  // Heaps of leaves by last use, oldest on top: [0] of those that are not wanted, [1] of the
  // others. Entries may be out of date (the node was used, changed its kind, left the tree or got
  // children since): evict_from() checks and repairs.
  std::array<std::vector<QueueEntry>, 2> eviction_queues_;
  std::vector<NodeId> pinned_;  // scratch of evict_from
  std::uint64_t planned_step_ = 1;
  std::uint64_t committed_step_ = 0;
  std::int32_t num_nodes_ = 0;
};

}  // namespace batchmill
