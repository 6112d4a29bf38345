// Feeds known sequences to a ModelRunner in any division into steps, with blocks in random order.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <random>
#include <stdexcept>
#include <vector>

#include "engine/model_runner.h"

namespace batchmill::testing {

class ScriptedSequences {
 public:
  ScriptedSequences(ModelRunner* runner, std::uint32_t seed) : runner_(*runner) {
    free_blocks_.resize(static_cast<std::size_t>(runner->num_blocks()));
    std::iota(free_blocks_.begin(), free_blocks_.end(), 0);
    std::shuffle(free_blocks_.begin(), free_blocks_.end(), std::mt19937(seed));
  }

  // A sequence that nothing has been computed of; returns its index.
  std::size_t add(std::vector<TokenId> tokens) {
    sequences_.push_back({std::move(tokens), 0, {}});
    return sequences_.size() - 1;
  }

  // One step that computes the next counts[i] tokens of every sequence i (0: not in the step).
  // Returns the logits of all its rows [rows][vocabulary].
  std::vector<std::vector<float>> step(const std::vector<std::int32_t>& counts) {
    Batch batch;
    batch.cu_seqlens.push_back(0);
    std::vector<const Sequence*> members;
    for (std::size_t s = 0; s < counts.size(); ++s) {
      if (counts[s] > 0) members.push_back(append(&batch, &sequences_[s], counts[s]));
    }
    for (const Sequence* member : members) {
      batch.max_blocks =
          std::max(batch.max_blocks, static_cast<std::int32_t>(member->blocks.size()));
    }
    for (const Sequence* member : members) {
      std::vector<BlockId> row = member->blocks;
      row.resize(static_cast<std::size_t>(batch.max_blocks), kNoBlock);
      batch.block_tables.insert(batch.block_tables.end(), row.begin(), row.end());
    }
    batch.logits_rows.resize(batch.token_ids.size());
    std::iota(batch.logits_rows.begin(), batch.logits_rows.end(), 0);
    const auto vocab = static_cast<std::size_t>(runner_.vocab_size());
    std::vector<float> logits(batch.token_ids.size() * vocab);
    runner_.forward(batch, logits);
    std::vector<std::vector<float>> rows(batch.token_ids.size());
    for (std::size_t i = 0; i < rows.size(); ++i) {
      rows[i].assign(logits.begin() + static_cast<std::ptrdiff_t>(i * vocab),
                     logits.begin() + static_cast<std::ptrdiff_t>((i + 1) * vocab));
    }
    return rows;
  }

 private:
  struct Sequence {
    std::vector<TokenId> tokens;
    std::int32_t num_computed = 0;
    std::vector<BlockId> blocks;
  };

  const Sequence* append(Batch* batch, Sequence* sequence, std::int32_t count) {
    const std::int32_t block_size = runner_.block_size_tokens();
    for (std::int32_t i = 0; i < count; ++i) {
      const std::int32_t position = sequence->num_computed++;
      if (position % block_size == 0) {
        if (free_blocks_.empty()) throw std::runtime_error("the test needs more blocks");
        sequence->blocks.push_back(free_blocks_.back());
        free_blocks_.pop_back();
      }
      batch->token_ids.push_back(sequence->tokens.at(static_cast<std::size_t>(position)));
      batch->positions.push_back(position);
      batch->slot_mapping.push_back(sequence->blocks.back() * block_size + position % block_size);
    }
    batch->cu_seqlens.push_back(batch->num_tokens());
    batch->context_lens.push_back(sequence->num_computed);
    return sequence;
  }

  ModelRunner& runner_;
  std::vector<BlockId> free_blocks_;
  std::vector<Sequence> sequences_;
};

}  // namespace batchmill::testing
