// Decides what each step computes: which sequences run, which rows of them, and whose KV makes room
// when the pool is full. Never touches the device. One owner: the Engine; one thread.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "engine/batch.h"
#include "engine/block_manager.h"
#include "engine/options.h"
#include "engine/sequence.h"

namespace batchmill {

// One sequence's share of a step: rows for its tokens [begin, begin + num_rows).
struct ScheduledSequence {
  Sequence* sequence = nullptr;
  std::int32_t begin = 0;
  std::int32_t num_rows = 0;
  std::int32_t first_logits_row = 0;  // index into Batch::logits_rows
  std::int32_t num_logits_rows = 0;  // always the last ones of its rows
};

class Scheduler {
 public:
  // `max_prompt_logits_rows`: rows of a step that may give logits for prompt log-probabilities.
  Scheduler(const EngineOptions& options, std::int32_t num_blocks, std::int32_t block_size_tokens,
            std::int32_t max_prompt_logits_rows);

  // Queues a sequence at its place in the admission order.
  void add(Sequence* sequence);
  // Forgets a sequence, waiting or running, and gives up its blocks. Not within a step.
  void remove(Sequence* sequence);

  // Later steps have at most so many rows.
  void limit_step(std::int32_t rows);

  // Fills `batch` with the next step's rows: running decodes first, then prefill chunks of running
  // sequences, then of newly admitted ones. Nothing to do: an empty batch. commit() or rollback()
  // must follow before anything else.
  const std::vector<ScheduledSequence>& schedule(Batch& batch);
  void commit() { blocks_.commit(); }
  void rollback() { blocks_.rollback(); }

  const BlockManager& blocks() const { return blocks_; }
  const std::vector<Sequence*>& running() const { return running_; }
  std::int64_t num_preemptions() const { return num_preemptions_; }

 private:
  void schedule_decodes();
  void schedule_prefill(Sequence& sequence);
  void admit();
  bool fits(const Sequence& sequence) const;
  void preempt_latest();
  void take(Sequence& sequence, std::int32_t num_rows, std::int32_t num_logits_rows);
  void fill(Batch& batch) const;

  EngineOptions options_;
  std::int32_t max_prompt_logits_rows_;
  std::int32_t watermark_blocks_;
  BlockManager blocks_;
  std::deque<Sequence*> waiting_;  // by order
  std::vector<Sequence*> running_;  // by time of admission
  std::vector<ScheduledSequence> step_;
  std::int32_t rows_left_ = 0;  // of this step
  std::int32_t prompt_logits_rows_left_ = 0;  // of this step
  std::int32_t num_logits_rows_ = 0;  // of this step
  std::int64_t num_preemptions_ = 0;
};

}  // namespace batchmill
