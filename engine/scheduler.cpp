#include "engine/scheduler.h"

#include <algorithm>
#include <cassert>
#include <cstdlib>

namespace batchmill {
namespace {

constexpr std::int32_t kWatermarkDivisor = 100;  // keep 1 % of the pool for running sequences

}  // namespace

Scheduler::Scheduler(const EngineOptions& options, std::int32_t num_blocks,
                     std::int32_t block_size_tokens, std::int32_t max_prompt_logits_rows)
    : options_(options),
      step_limit_(options.max_num_batched_tokens),
      max_prompt_logits_rows_(max_prompt_logits_rows),
      watermark_blocks_(std::max(1, num_blocks / kWatermarkDivisor)),
      blocks_(num_blocks, block_size_tokens) {
  running_.reserve(static_cast<std::size_t>(options.max_num_seqs));
}

void Scheduler::add(Sequence* sequence) {
  if (waiting_.empty() || waiting_.back()->order < sequence->order) {
    waiting_.push_back(sequence);
    return;
  }
  // What comes back is older than nearly everything that waits.
  const auto place = std::ranges::find_if(
      waiting_, [&](const Sequence* other) { return sequence->order < other->order; });
  waiting_.insert(place, sequence);
}

void Scheduler::remove(Sequence* sequence) {
  if (std::erase(running_, sequence) == 0) std::erase(waiting_, sequence);
  blocks_.release(*sequence, /*keep_tail=*/false);
}

void Scheduler::schedule(ScheduledStep* step) {
  step_ = step;
  step_->sequences.clear();
  rows_left_ = step_limit_.rows();
  prompt_logits_rows_left_ = max_prompt_logits_rows_;
  num_logits_rows_ = 0;
  const std::int64_t preemptions_before = num_preemptions_;

  schedule_decodes();
  const auto schedule_prefills = [this] {
    for (Sequence* sequence : running_) {
      if (sequence->num_scheduled_tokens == 0) schedule_prefill(*sequence);
    }
  };
  schedule_prefills();
  // Only sequences in prefill, each holding blocks that another lacks: the latest gives way.
  while (step_->sequences.empty() && running_.size() > 1) {
    preempt_latest();
    schedule_prefills();
  }
  if (num_preemptions_ == preemptions_before) admit();

  // With one sequence left, every other block is free or evictable, and add() made sure that it
  // fits: work without a row would be a broken invariant.
  if (step_->sequences.empty() && !(running_.empty() && waiting_.empty())) std::abort();
  fill_batch();
}

void Scheduler::advance(const ScheduledStep& step) {
  blocks_.advance();
  for (const ScheduledSequence& entry : step.sequences) {
    if (entry.draws && entry.sequence != nullptr) entry.sequence->add(kNoToken);
  }
}

bool Scheduler::can_plan_ahead() const {
  std::int32_t num_decodes = 0;
  std::int32_t num_new_blocks = 0;
  std::int32_t shortest_prefill_blocks = blocks_.pool().num_blocks();
  for (const Sequence* sequence : running_) {
    if (sequence->is_ending()) continue;
    const std::int32_t needed = blocks_.blocks_for(sequence->size());
    if (sequence->is_decoding()) {
      ++num_decodes;
      num_new_blocks += std::max(0, needed - static_cast<std::int32_t>(sequence->blocks.size()));
    } else {
      shortest_prefill_blocks = std::min(shortest_prefill_blocks, needed);
    }
  }
  if (num_decodes > 0) return num_new_blocks <= blocks_.num_available();
  // Whatever it shares or copies, there is a block for its rows.
  return shortest_prefill_blocks < blocks_.num_available();
}

void Scheduler::publish_drawn(const ScheduledStep& step) {
  for (const ScheduledSequence& entry : step.sequences) {
    if (entry.is_drawn && entry.sequence != nullptr) blocks_.publish(*entry.sequence, false);
  }
}

void Scheduler::schedule_decodes() {
  for (std::size_t i = 0; i < running_.size() && rows_left_ > 0; ++i) {
    Sequence* sequence = running_[i];
    if (!sequence->is_decoding() || sequence->is_ending()) continue;
    bool has_block = blocks_.extend(*sequence, 1) > 0;
    while (!has_block) {
      const bool was_last = running_.back() == sequence;
      preempt_latest();
      if (was_last) break;
      has_block = blocks_.extend(*sequence, 1) > 0;
    }
    if (has_block) take(*sequence, 1, 1);
  }
}

void Scheduler::schedule_prefill(Sequence& sequence) {
  if (rows_left_ == 0 || sequence.is_ending()) return;
  if (sequence.wants_prompt_logprobs() && prompt_logits_rows_left_ == 0) return;
  if (!blocks_.match(sequence)) return;

  const std::int32_t begin = sequence.num_computed_tokens;
  std::int32_t rows = std::min(rows_left_, sequence.size() - begin);
  std::int32_t silent_rows = sequence.size() - 1 - begin;  // rows before the first with logits
  if (sequence.wants_prompt_logprobs()) {
    silent_rows = sequence.num_logprob_rows - begin;
    rows = std::min(rows, silent_rows + prompt_logits_rows_left_);
  }
  rows = blocks_.extend(sequence, rows);
  if (rows <= 0) return;
  const std::int32_t logits_rows = std::max(0, rows - silent_rows);
  if (sequence.wants_prompt_logprobs()) prompt_logits_rows_left_ -= logits_rows;
  take(sequence, rows, logits_rows);
}

void Scheduler::admit() {
  while (!waiting_.empty() && rows_left_ > 0 &&
         static_cast<std::int32_t>(running_.size()) < options_.max_num_seqs) {
    Sequence* sequence = waiting_.front();
    if (!running_.empty() && !fits(*sequence)) break;
    waiting_.pop_front();
    running_.push_back(sequence);
    sequence->was_admitted = true;
    sequence->reserved_tokens =
        std::min(sequence->size() + options_.generation_reserve_tokens, sequence->max_size);
    schedule_prefill(*sequence);
  }
}

bool Scheduler::fits(const Sequence& sequence) const {
  std::int32_t available = blocks_.num_available() - watermark_blocks_;
  for (const Sequence* other : running_) {
    const auto have = static_cast<std::int32_t>(other->blocks.size());
    available -= std::max(0, blocks_.blocks_for(other->reserved_tokens) - have);
  }
  const std::int32_t length =
      std::min(sequence.size() + options_.generation_reserve_tokens, sequence.max_size);
  return available > 0 && blocks_.blocks_to_admit(sequence, length) <= available;
}

void Scheduler::preempt_latest() {
  Sequence* victim = running_.back();
  running_.pop_back();
  blocks_.release(*victim, /*keep_tail=*/true);
  ++victim->num_preemptions;
  ++num_preemptions_;
  add(victim);
}

void Scheduler::take(Sequence& sequence, std::int32_t num_rows, std::int32_t num_logits_rows) {
  const std::int32_t begin = sequence.num_computed_tokens;
  sequence.num_scheduled_tokens = num_rows;
  const bool draws = begin + num_rows == sequence.size();
  blocks_.publish(sequence, /*with_tail=*/draws && !sequence.is_decoding());
  step_->sequences.push_back({&sequence, begin, num_rows, num_logits_rows_, num_logits_rows, draws,
                              sequence.is_newest_unknown()});
  rows_left_ -= num_rows;
  num_logits_rows_ += num_logits_rows;
}

void Scheduler::fill_batch() const {
  Batch& batch = step_->batch;
  batch.clear();
  const std::int32_t block_size = blocks_.block_size();
  for (const ScheduledSequence& entry : step_->sequences) {
    batch.max_blocks =
        std::max(batch.max_blocks, static_cast<std::int32_t>(entry.sequence->blocks.size()));
  }
  batch.cu_seqlens.push_back(0);
  for (const ScheduledSequence& entry : step_->sequences) {
    const Sequence& sequence = *entry.sequence;
    if (entry.is_drawn) batch.drawn_tokens.push_back({batch.num_tokens(), sequence.draw});
    const std::int32_t end = entry.begin + entry.num_rows;
    for (std::int32_t position = entry.begin; position < end; ++position) {
      const auto& block = sequence.blocks[static_cast<std::size_t>(position / block_size)];
      batch.token_ids.push_back(sequence.tokens[static_cast<std::size_t>(position)]);
      batch.positions.push_back(position);
      batch.slot_mapping.push_back(block.id() * block_size + position % block_size);
    }
    batch.cu_seqlens.push_back(batch.num_tokens());
    batch.context_lens.push_back(end);
    for (const BlockRef& block : sequence.blocks) batch.block_tables.push_back(block.id());
    batch.block_tables.resize(
        batch.context_lens.size() * static_cast<std::size_t>(batch.max_blocks), kNoBlock);
    for (std::int32_t row = batch.num_tokens() - entry.num_logits_rows; row < batch.num_tokens();
         ++row) {
      batch.logits_rows.push_back(row);
    }
  }
  const auto copies = blocks_.copies();
  batch.copies.assign(copies.begin(), copies.end());
}

}  // namespace batchmill
