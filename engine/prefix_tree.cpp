#include "engine/prefix_tree.h"

#include <algorithm>
#include <cassert>

namespace batchmill {
namespace {

std::int32_t common_prefix(std::span<const TokenId> a, std::span<const TokenId> b) {
  const std::size_t limit = std::min(a.size(), b.size());
  std::size_t i = 0;
  while (i < limit && a[i] == b[i]) ++i;
  return static_cast<std::int32_t>(i);
}

// Heap order: the smallest (oldest) entry on top; equal ages by id, so that runs are repeatable.
constexpr auto kOlderOnTop = [](const auto& a, const auto& b) {
  return a.last_use != b.last_use ? a.last_use > b.last_use : a.node > b.node;
};

}  // namespace

PrefixTree::PrefixTree(BlockPool* pool, std::int32_t block_size_tokens)
    : pool_(pool),
      block_size_(block_size_tokens),
      tokens_(static_cast<std::size_t>(pool->num_blocks()) *
              static_cast<std::size_t>(block_size_tokens)) {
  const std::size_t num_nodes = static_cast<std::size_t>(pool->num_blocks()) + 1;
  nodes_.resize(num_nodes);
  for (Node& node : nodes_) {
    std::destroy_at(&node.children);
    std::construct_at(&node.children, &memory_);
    node.children.reserve(1);
  }
  for (Node& node : nodes_) node.children.shrink_to_fit();  // memory_ keeps it
  for (auto& queue : eviction_queues_) queue.reserve(num_nodes);
  open_.reserve(num_nodes);
  pinned_.reserve(num_nodes);
}

PrefixTree::~PrefixTree() {
  for (NodeId node = 0; node < root(); ++node) {
    if (contains(node)) pool_->set_cached(node, false);
  }
}

std::span<const TokenId> PrefixTree::tokens(NodeId node) const {
  return std::span(tokens_).subspan(
      static_cast<std::size_t>(node) * static_cast<std::size_t>(block_size_),
      static_cast<std::size_t>(at(node).num_tokens));
}

std::size_t PrefixTree::lower_bound(const Node& parent, std::span<const TokenId> wanted) const {
  const auto it = std::lower_bound(parent.children.begin(), parent.children.end(), wanted,
                                   [this](NodeId child, std::span<const TokenId> value) {
                                     const auto have = tokens(child);
                                     return std::lexicographical_compare(
                                         have.begin(), have.end(), value.begin(), value.end());
                                   });
  return static_cast<std::size_t>(it - parent.children.begin());
}

PrefixTree::NodeId PrefixTree::find_full(NodeId parent, std::span<const TokenId> wanted) const {
  assert(wanted.size() == static_cast<std::size_t>(block_size_));
  const Node& node = at(parent);
  const std::size_t place = lower_bound(node, wanted);
  if (place == node.children.size()) return kNoBlock;
  const NodeId child = node.children[place];
  return std::ranges::equal(tokens(child), wanted) ? child : kNoBlock;
}

PrefixTree::PartialMatch PrefixTree::find_partial(NodeId parent,
                                                  std::span<const TokenId> wanted) const {
  PartialMatch best;
  const auto& children = at(parent).children;
  const std::size_t place = lower_bound(at(parent), wanted);
  // Children are sorted, so the common prefix only gets shorter with the distance from `place`.
  // Each direction ends at its first valid child, or where it cannot beat what was found.
  const auto consider = [&](NodeId child) {
    const std::int32_t common = common_prefix(tokens(child), wanted);
    if (common <= best.num_tokens) return false;
    if (is_pending(child)) {
      best.pending_tokens = std::max(best.pending_tokens, common);
      return true;
    }
    best.node = child;
    best.num_tokens = common;
    return false;
  };
  for (std::size_t i = place; i < children.size() && consider(children[i]); ++i) {
  }
  for (std::size_t i = place; i > 0 && consider(children[i - 1]); --i) {
  }
  return best;
}

void PrefixTree::attach(NodeId parent, std::span<const TokenId> content, const BlockRef& block,
                        bool pending) {
  const NodeId id = block.id();
  const std::size_t place = lower_bound(at(parent), content);
  auto& siblings = at(parent).children;
  siblings.insert(siblings.begin() + static_cast<std::ptrdiff_t>(place), id);
  std::ranges::copy(content, tokens_.begin() + static_cast<std::ptrdiff_t>(id) * block_size_);
  Node& node = at(id);
  node.parent = parent;
  node.depth = at(parent).depth + 1;
  node.num_tokens = static_cast<std::int32_t>(content.size());
  node.wanted = true;
  node.step = pending ? planned_step_ : 0;
  node.last_use = planned_step_;
  node.block = block.share();
  pool_->set_cached(id, true);
  ++num_nodes_;
  if (pending) open_.push_back(id);
  queue_if_leaf(id);
}

PrefixTree::NodeId PrefixTree::insert_full(NodeId parent, std::span<const TokenId> content,
                                           const BlockRef& block) {
  // The block may be in the tree as the partly filled leaf that it was.
  if (contains(block.id())) remove(block.id());
  if (const NodeId existing = find_full(parent, content); existing != kNoBlock) {
    touch(existing);
    return existing;
  }
  attach(parent, content, block, /*pending=*/true);
  return block.id();
}

void PrefixTree::insert_partial(NodeId parent, std::span<const TokenId> content,
                                const BlockRef& block, bool pending) {
  if (contains(block.id())) remove(block.id());
  const PartialMatch match = find_partial(parent, content);
  const auto wanted = static_cast<std::int32_t>(content.size());
  if (match.num_tokens == wanted || match.pending_tokens == wanted) return;
  attach(parent, content, block, pending);
}

BlockRef PrefixTree::share(NodeId node) {
  touch(node);
  return at(node).block.share();
}

void PrefixTree::remove(NodeId id) {
  Node& node = at(id);
  assert(node.children.empty());
  const NodeId parent = node.parent;
  auto& siblings = at(parent).children;
  const std::size_t place = lower_bound(at(parent), tokens(id));
  assert(siblings[place] == id);
  siblings.erase(siblings.begin() + static_cast<std::ptrdiff_t>(place));
  if (!is_committed(id)) std::erase(open_, id);
  node.children.shrink_to_fit();
  node.parent = kNoBlock;
  node.step = 0;
  --num_nodes_;
  pool_->set_cached(id, false);
  node.block.reset();
  queue_if_leaf(parent);
}

void PrefixTree::queue_if_leaf(NodeId id) {
  Node& node = at(id);
  const std::size_t kind = node.wanted ? 1 : 0;
  if (id == root() || node.queued[kind] || !node.children.empty()) return;
  node.queued[kind] = true;
  eviction_queues_[kind].push_back({node.last_use, id});
  std::ranges::push_heap(eviction_queues_[kind], kOlderOnTop);
}

void PrefixTree::set_wanted(NodeId id, bool wanted) {
  Node& node = at(id);
  if (node.wanted == wanted) return;
  node.wanted = wanted;
  queue_if_leaf(id);
}

void PrefixTree::commit() {
  ++committed_step_;
  planned_step_ = std::max(planned_step_, committed_step_ + 1);
  const auto first_open =
      std::ranges::find_if(open_, [this](NodeId node) { return !is_committed(node); });
  open_.erase(open_.begin(), first_open);
}

void PrefixTree::rollback() {
  while (!open_.empty()) remove(open_.back());
  committed_step_ = planned_step_++;
}

bool PrefixTree::evict_one() {
  if (pool_->num_evictable() == 0) return false;
  return evict_from(/*wanted=*/false) || evict_from(/*wanted=*/true);
}

bool PrefixTree::evict_from(bool wanted) {
  const std::size_t kind = wanted ? 1 : 0;
  auto& queue = eviction_queues_[kind];
  pinned_.clear();
  bool evicted = false;
  while (!evicted && !queue.empty()) {
    const QueueEntry oldest = queue.front();
    std::ranges::pop_heap(queue, kOlderOnTop);
    queue.pop_back();
    Node& node = at(oldest.node);
    node.queued[kind] = false;
    if (!contains(oldest.node) || !node.children.empty() || node.wanted != wanted) continue;
    if (node.last_use > oldest.last_use) {
      queue_if_leaf(oldest.node);
    } else if (!pool_->is_evictable(oldest.node)) {
      pinned_.push_back(oldest.node);
    } else {
      remove(oldest.node);
      evicted = true;
    }
  }
  // Whoever holds a leaf uses it now.
  for (const NodeId node : pinned_) {
    touch(node);
    queue_if_leaf(node);
  }
  return evicted;
}

}  // namespace batchmill
