#include "engine/block_manager.h"

#include <algorithm>
#include <cassert>

namespace batchmill {

BlockManager::BlockManager(std::int32_t num_blocks, std::int32_t block_size_tokens)
    : block_size_(block_size_tokens), pool_(num_blocks), tree_(&pool_, block_size_tokens) {}

std::int32_t BlockManager::reuse_limit(const Sequence& sequence) {
  const std::int32_t limit = sequence.size() - 1;
  return sequence.wants_prompt_logprobs() ? std::min(limit, sequence.num_logprob_rows) : limit;
}

BlockRef BlockManager::allocate() {
  BlockRef block = pool_.allocate();
  if (!block && tree_.evict_one()) block = pool_.allocate();
  return block;
}

std::int32_t BlockManager::cached_tokens(std::span<const TokenId> tokens,
                                         std::int32_t limit) const {
  PrefixTree::NodeId node = tree_.root();
  std::int32_t begin = 0;
  const auto range = [&](std::int32_t count) {
    return tokens.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(count));
  };
  while (begin + block_size_ <= limit) {
    const PrefixTree::NodeId child = tree_.find_full(node, range(block_size_));
    if (child == kNoBlock) break;
    node = child;
    begin += block_size_;
  }
  const std::int32_t rest = std::min(block_size_, limit - begin);
  return begin + (rest > 0 ? tree_.find_partial(node, range(rest)).num_tokens : 0);
}

std::int32_t BlockManager::blocks_to_admit(const Sequence& sequence,
                                           std::int32_t num_tokens) const {
  std::int32_t needed = blocks_for(num_tokens);
  PrefixTree::NodeId node = tree_.root();
  const std::int32_t limit = reuse_limit(sequence);
  for (std::int32_t begin = 0; begin + block_size_ <= limit; begin += block_size_) {
    node = tree_.find_full(node, sequence.range(begin, block_size_));
    if (node == kNoBlock) break;
    if (!pool_.is_evictable(node)) --needed;
  }
  return needed;
}

bool BlockManager::match(Sequence& sequence) {
  const std::int32_t limit = reuse_limit(sequence);
  std::int32_t computed = sequence.num_computed_tokens;
  std::int32_t depth = computed / block_size_;
  if (sequence.cursor == kNoBlock) sequence.cursor = tree_.root();
  assert(tree_.depth(sequence.cursor) == depth);
  touch(sequence);

  while ((depth + 1) * block_size_ <= limit) {
    const auto child =
        tree_.find_full(sequence.cursor, sequence.range(depth * block_size_, block_size_));
    if (child == kNoBlock) break;
    // A partly filled block of its own goes, and with it what it held.
    auto& valid_tokens = touched_.back().valid_tokens;
    valid_tokens = std::min(valid_tokens, depth * block_size_);
    sequence.blocks.resize(static_cast<std::size_t>(depth));
    sequence.blocks.push_back(tree_.share(child));
    sequence.cursor = child;
    mark_wanted(sequence);
    ++depth;
    computed = depth * block_size_;
    // Below a node that may still fail all may: valid_tokens stops growing at the first of them.
    if (tree_.is_committed(child)) valid_tokens = computed;
  }
  sequence.num_computed_tokens = computed;

  const std::int32_t begin = depth * block_size_;
  const std::int32_t rest = std::min(block_size_, limit - begin);
  if (rest <= computed - begin) return true;
  const auto partial = tree_.find_partial(sequence.cursor, sequence.range(begin, rest));
  if (partial.pending_tokens > std::max(partial.num_tokens, computed - begin)) return false;
  if (partial.num_tokens <= computed - begin) return true;

  BlockRef source = tree_.share(partial.node);
  BlockRef destination = allocate();
  if (!destination) return true;
  touched_.back().valid_tokens = std::min(touched_.back().valid_tokens, begin);
  copies_.push_back({source.id(), destination.id(), partial.num_tokens});
  copy_sources_.push_back(std::move(source));
  sequence.blocks.resize(static_cast<std::size_t>(depth));
  sequence.blocks.push_back(std::move(destination));
  sequence.num_computed_tokens = begin + partial.num_tokens;
  return true;
}

std::int32_t BlockManager::extend(Sequence& sequence, std::int32_t num_rows) {
  const std::int32_t computed = sequence.num_computed_tokens;
  const auto needed = static_cast<std::size_t>(blocks_for(computed + num_rows));
  while (sequence.blocks.size() < needed) {
    BlockRef block = allocate();
    if (!block) break;
    sequence.blocks.push_back(std::move(block));
  }
  const auto room = static_cast<std::int32_t>(sequence.blocks.size()) * block_size_ - computed;
  return std::min(num_rows, room);
}

void BlockManager::touch(Sequence& sequence) {
  touched_.push_back({&sequence, sequence.num_computed_tokens, tree_.planned_step()});
}

void BlockManager::publish(Sequence& sequence, bool with_tail) {
  touch(sequence);
  if (sequence.is_newest_unknown()) return;
  const std::int32_t end = sequence.num_computed_tokens + sequence.num_scheduled_tokens;
  std::int32_t depth = tree_.depth(sequence.cursor);
  for (; (depth + 1) * block_size_ <= end; ++depth) {
    const BlockRef& block = sequence.blocks[static_cast<std::size_t>(depth)];
    const auto node =
        tree_.insert_full(sequence.cursor, sequence.range(depth * block_size_, block_size_), block);
    if (node != block.id()) {
      replacements_.push_back({tree_.planned_step(), &sequence, depth, tree_.share(node)});
    }
    sequence.cursor = node;
    mark_wanted(sequence);
  }
  if (with_tail && end % block_size_ != 0) {
    const BlockRef& block = sequence.blocks[static_cast<std::size_t>(depth)];
    tree_.insert_partial(sequence.cursor, sequence.range(depth * block_size_, end % block_size_),
                         block, /*pending=*/true);
    const bool is_wanted =
        sequence.num_wanted_tokens < 0 || sequence.num_wanted_tokens > depth * block_size_;
    if (tree_.contains(block.id())) tree_.set_wanted(block.id(), is_wanted);
  }
}

void BlockManager::mark_wanted(const Sequence& sequence) {
  // A preempted sequence comes back to what it had: it is a later request itself.
  if (sequence.num_wanted_tokens < 0 || sequence.num_preemptions > 0) return;
  // Of a block that later requests share in part, that part is copied.
  const std::int32_t begin = (tree_.depth(sequence.cursor) - 1) * block_size_;
  tree_.set_wanted(sequence.cursor, begin < sequence.num_wanted_tokens);
}

void BlockManager::advance() {
  for (const Touched& entry : touched_) {
    if (entry.step != tree_.planned_step()) continue;
    entry.sequence->num_computed_tokens += entry.sequence->num_scheduled_tokens;
    entry.sequence->num_scheduled_tokens = 0;
  }
  copies_.clear();
  copy_sources_.clear();
  tree_.advance();
}

void BlockManager::commit() {
  if (tree_.planned_step() == tree_.committed_step() + 1) advance();
  tree_.commit();
  const auto is_committed = [step = tree_.committed_step()](const auto& entry) {
    return entry.step <= step;
  };
  for (Replacement& entry : replacements_) {
    if (!is_committed(entry)) break;
    entry.sequence->blocks[static_cast<std::size_t>(entry.index)] = std::move(entry.block);
  }
  std::erase_if(replacements_, is_committed);
  std::erase_if(touched_, is_committed);
}

void BlockManager::rewind_cursor(Sequence& sequence, std::int32_t depth) const {
  if (sequence.cursor == kNoBlock) return;
  while (tree_.depth(sequence.cursor) > depth) sequence.cursor = tree_.parent(sequence.cursor);
}

void BlockManager::rollback() {
  // In reverse, so that each sequence's first entry has the last word.
  for (std::size_t i = touched_.size(); i > 0; --i) {
    const auto& [sequence, valid_tokens, step] = touched_[i - 1];
    sequence->forget_unknown();
    rewind_cursor(*sequence, valid_tokens / block_size_);
    sequence->num_computed_tokens = valid_tokens;
    sequence->num_scheduled_tokens = 0;
    sequence->blocks.resize(static_cast<std::size_t>(blocks_for(valid_tokens)));
  }
  replacements_.clear();
  copies_.clear();
  copy_sources_.clear();
  tree_.rollback();
  touched_.clear();
}

void BlockManager::release(Sequence& sequence, bool keep_tail) {
  if (sequence.cursor != kNoBlock) {
    const std::int32_t full = tree_.depth(sequence.cursor);
    for (std::int32_t i = 0; i < full; ++i) {
      const BlockId node = sequence.blocks[static_cast<std::size_t>(i)].id();
      tree_.touch(node);
      if (keep_tail) tree_.set_wanted(node, true);
    }
    const std::int32_t tail = sequence.num_computed_tokens - full * block_size_;
    if (keep_tail && tail > 0) {
      tree_.insert_partial(sequence.cursor, sequence.range(full * block_size_, tail),
                           sequence.blocks[static_cast<std::size_t>(full)], /*pending=*/false);
    }
  }
  const auto is_of_sequence = [&](const auto& entry) { return entry.sequence == &sequence; };
  std::erase_if(touched_, is_of_sequence);
  std::erase_if(replacements_, is_of_sequence);
  sequence.blocks.clear();
  sequence.cursor = kNoBlock;
  sequence.num_computed_tokens = 0;
}

}  // namespace batchmill
