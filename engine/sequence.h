// One choice of one request on its way: its tokens, and how far its KV reaches. Owned by its
// RequestState; the scheduler and the block manager keep pointers while it waits or runs.
#pragma once

#include <compare>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/block_pool.h"
#include "engine/types.h"

namespace batchmill {

struct RequestState;

// Admission order: requests as they were added, choices within.
struct SequenceOrder {
  std::uint64_t request = 0;
  std::int32_t choice = 0;
  auto operator<=>(const SequenceOrder&) const = default;
};

struct Sequence {
  RequestState* request = nullptr;
  SequenceOrder order;

  // Prompt, then generated. The last is kNoToken if a step under way draws it.
  std::vector<TokenId> tokens;
  std::int32_t num_prompt_tokens = 0;
  std::int32_t max_size = 0;  // tokens.size() never passes this
  // Rows of this sequence must all give logits up to here: no prefix may be reused past what was
  // delivered. -1: no such wish.
  std::int32_t num_logprob_rows = -1;
  // Leading tokens that later requests are known to share; -1: nothing is known.
  std::int32_t num_wanted_tokens = -1;

  // KV. `blocks` covers at least num_computed tokens; all full blocks among them are in the tree
  // and `cursor` is the last one's node (the root if there is none).
  std::vector<BlockRef> blocks;
  BlockId cursor = kNoBlock;
  std::int32_t num_computed_tokens = 0;
  std::int32_t num_scheduled_tokens = 0;  // by the planned step
  std::int32_t draw = 0;  // the newest token's, among its step's draws
  std::int32_t reserved_tokens = 0;  // length that admission made sure there is room for

  // Generated tokens whose KV was computed at least once.
  std::int32_t num_decoded_tokens = 0;
  std::int32_t num_preemptions = 0;
  bool was_admitted = false;

  std::int32_t size() const { return static_cast<std::int32_t>(tokens.size()); }
  std::int32_t num_generated() const { return size() - num_prompt_tokens; }
  bool is_newest_unknown() const { return tokens.back() == kNoToken; }
  void add(TokenId token) {
    forget_unknown();
    tokens.push_back(token);
  }
  void forget_unknown() {
    if (is_newest_unknown()) tokens.pop_back();
  }
  // Whatever the token under way is, it is the last.
  bool is_ending() const { return is_newest_unknown() && size() >= max_size; }
  // Only the newest token's KV is missing.
  bool is_decoding() const { return num_generated() > 0 && num_computed_tokens == size() - 1; }
  bool wants_prompt_logprobs() const { return num_logprob_rows >= 0; }

  std::span<const TokenId> range(std::int32_t begin, std::int32_t count) const {
    return std::span(tokens).subspan(static_cast<std::size_t>(begin),
                                     static_cast<std::size_t>(count));
  }
};

}  // namespace batchmill
