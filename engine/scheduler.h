// Decides what each step computes: which sequences run, which rows of them, and whose KV makes room
// when the pool is full. Never touches the device. One owner: the Engine; one thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <vector>

#include "engine/batch.h"
#include "engine/block_manager.h"
#include "engine/options.h"
#include "engine/sequence.h"
#include "engine/step_limit.h"

namespace batchmill {

// One sequence's share of a step: rows for its tokens [begin, begin + num_rows).
struct ScheduledSequence {
  Sequence* sequence = nullptr;  // null: it ended while the step was under way
  std::int32_t begin = 0;
  std::int32_t num_rows = 0;
  std::int32_t first_logits_row = 0;  // index into Batch::logits_rows
  std::int32_t num_logits_rows = 0;  // always the last ones of its rows
  bool draws = false;  // the next token, from the last row's logits
  bool is_drawn = false;  // its one row's token is drawn by the step before
};

// What a step computes. Lists keep their memory.
struct ScheduledStep {
  std::vector<ScheduledSequence> sequences;
  Batch batch;
};

// Prompt log-probabilities need the logits of every prompt row: the prompt is cut into chunks of so
// many rows, whose logits are 64 MiB.
constexpr std::int32_t max_prompt_logits_rows(std::int32_t vocab_size) {
  constexpr std::int64_t kBytes = 64 << 20;
  const std::int64_t row_bytes = std::int64_t{vocab_size} * 4;
  return static_cast<std::int32_t>(std::clamp<std::int64_t>(kBytes / row_bytes, 1, 1 << 20));
}

class Scheduler {
 public:
  // `max_prompt_logits_rows`: rows of a step that may give logits for prompt log-probabilities.
  Scheduler(const EngineOptions& options, std::int32_t num_blocks, std::int32_t block_size_tokens,
            std::int32_t max_prompt_logits_rows);

  // Queues a sequence at its place in the admission order.
  void add(Sequence* sequence);
  // Forgets a sequence, waiting or running, and gives up its blocks. Not while a step is planned.
  void remove(Sequence* sequence);

  // How many rows later steps have at most.
  StepLimit& step_limit() { return step_limit_; }

  // Plans the next step: running decodes first, then prefill chunks of running sequences, then of
  // newly admitted ones. Nothing to do: no sequences.
  void schedule(ScheduledStep* step);
  // The oldest step that was planned has succeeded. Or all of them have failed.
  void commit() { blocks_.commit(); }
  void rollback() { blocks_.rollback(); }

  // The planned step is under way, so that the next one can be planned behind it. What it draws are
  // tokens that are not known yet.
  void advance(const ScheduledStep& step);
  // Whether a step planned behind one under way has rows, and nobody has to give way for them.
  bool can_plan_ahead() const;
  // The step was planned ahead, and the tokens that were not known then are: enters the blocks that
  // they fill.
  void publish_drawn(const ScheduledStep& step);

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
  void fill_batch() const;

  EngineOptions options_;
  StepLimit step_limit_;
  std::int32_t max_prompt_logits_rows_;
  std::int32_t watermark_blocks_;
  BlockManager blocks_;
  std::deque<Sequence*> waiting_;  // by order
  std::vector<Sequence*> running_;  // by time of admission
  ScheduledStep* step_ = nullptr;  // that is planned
  std::int32_t rows_left_ = 0;  // of this step
  std::int32_t prompt_logits_rows_left_ = 0;  // of this step
  std::int32_t num_logits_rows_ = 0;  // of this step
  std::int64_t num_preemptions_ = 0;
};

}  // namespace batchmill
