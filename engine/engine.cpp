#include "engine/engine.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "engine/engine_impl.h"

namespace batchmill {
namespace {

// Room in a step's block tables from the start; a longer one grows when it is needed.
constexpr std::size_t kReservedTableEntries = 1 << 20;

const EngineOptions& checked(const EngineOptions& options) {
  if (options.max_num_seqs < 1 || options.max_num_batched_tokens < 1 ||
      options.max_context_tokens < 2 || options.generation_reserve_tokens < 0) {
    throw std::invalid_argument("engine options: sizes must be positive");
  }
  return options;
}

}  // namespace

Engine::Impl::Impl(const EngineOptions& options, ModelRunner* runner, const Tokenizer* tokenizer)
    : options_(checked(options)),
      runner_(runner),
      tokenizer_(tokenizer),
      vocab_size_(runner->vocab_size()),
      max_sequence_tokens_(static_cast<std::int32_t>(std::min<std::int64_t>(
          options.max_context_tokens,
          std::int64_t{runner->num_blocks()} * runner->block_size_tokens()))),
      scheduler_(options, runner->num_blocks(), runner->block_size_tokens(),
                 max_prompt_logits_rows(vocab_size_)),
      sampler_(vocab_size_),
      draws_tokens_(runner->draws_tokens()) {
  const auto max_seqs = static_cast<std::size_t>(options.max_num_seqs);
  const auto max_blocks =
      static_cast<std::size_t>(scheduler_.blocks().blocks_for(max_sequence_tokens_));
  for (Step& step : steps_) {
    step.sequences.reserve(max_seqs);
    step.batch.block_tables.reserve(std::min(max_seqs * max_blocks, kReservedTableEntries));
  }
  output_.work.reserve(max_seqs);
  output_.finished.reserve(max_seqs);
  finished_.reserve(max_seqs);
}

// The runner goes on without the engine, so nothing may be left under way on it.
Engine::Impl::~Impl() {
  if (under_way_ != nullptr) runner_->drop_steps();
}

void Engine::Impl::add(Request request) {
  const auto num_prompt_tokens = static_cast<std::int64_t>(request.prompt.size());
  if (num_prompt_tokens == 0) throw std::invalid_argument("request: the prompt is empty");
  if (num_prompt_tokens + 1 > max_sequence_tokens_) {
    throw std::invalid_argument("request: a prompt of " + std::to_string(num_prompt_tokens) +
                                " tokens leaves no room in " +
                                std::to_string(max_sequence_tokens_) + " tokens");
  }
  if (std::ranges::any_of(request.prompt,
                          [&](TokenId id) { return id < 0 || id >= vocab_size_; })) {
    throw std::invalid_argument("request: the prompt holds an id that is not in the vocabulary");
  }
  if (request.num_choices < 1) throw std::invalid_argument("request: num_choices is below 1");
  if (requests_.contains(request.id)) {
    throw std::invalid_argument("request: id " + std::to_string(request.id) + " is in use");
  }

  auto state = std::make_unique<RequestState>(std::move(request));
  state->order = next_order_++;
  state->num_cached_tokens = static_cast<std::int32_t>(num_prompt_tokens);
  state->num_open_choices = state->request.num_choices;
  state->choices.reserve(static_cast<std::size_t>(state->request.num_choices));
  const SamplingParams& params = state->request.params;
  ChoiceState& first = open_choice(*state);
  if (params.prompt_logprobs) {
    first.sequence.num_logprob_rows = 0;
  } else if (params.max_tokens <= 0) {
    // Nothing is asked of the model.
    while (static_cast<std::int32_t>(state->choices.size()) < state->request.num_choices) {
      open_choice(*state);
    }
    for (auto& choice : state->choices) choice->output.finish_reason = FinishReason::kLength;
    collect(*state);
    return;
  }
  scheduler_.add(&first.sequence);
  requests_.emplace(state->request.id, std::move(state));
}

ChoiceState& Engine::Impl::open_choice(RequestState& state) {
  const SamplingParams& params = state.request.params;
  state.choices.push_back(
      std::make_unique<ChoiceState>(tokenizer_, &params, options_.eos_token_ids));
  Sequence& sequence = state.choices.back()->sequence;
  sequence.request = &state;
  sequence.order = {state.order, static_cast<std::int32_t>(state.choices.size()) - 1};
  sequence.num_prompt_tokens = static_cast<std::int32_t>(state.request.prompt.size());
  const std::int64_t longest =
      std::int64_t{sequence.num_prompt_tokens} + std::max(0, params.max_tokens);
  sequence.max_size =
      static_cast<std::int32_t>(std::min<std::int64_t>(longest, max_sequence_tokens_));
  sequence.tokens.reserve(static_cast<std::size_t>(sequence.max_size));
  sequence.tokens = state.request.prompt;
  sequence.blocks.reserve(
      static_cast<std::size_t>(scheduler_.blocks().blocks_for(sequence.max_size)));
  // The other choices begin with the whole prompt.
  sequence.num_wanted_tokens =
      state.request.num_choices == 1 ? state.request.num_wanted_tokens : -1;
  return *state.choices.back();
}

StepOutput& Engine::Impl::step() {
  StepOutput& output = output_;
  output.work.clear();
  output.finished.clear();
  output.num_tokens = 0;
  Step& step = under_way_ != nullptr ? *under_way_ : steps_[0];
  if (under_way_ == nullptr) begin(&step);
  under_way_ = nullptr;
  if (!step.sequences.empty()) {
    // The device has its next step before this one's tokens are read.
    Step& next = &step == steps_.data() ? steps_[1] : steps_[0];
    if (can_begin_behind(step)) {
      begin(&next);
      under_way_ = &next;
    }
    end(&step);
    scheduler_.commit();
    ++step_number_;
    for (const ScheduledSequence& entry : step.sequences) count_rows(entry);
    for (const ScheduledSequence& entry : step.sequences) use_logits(step, entry);
    if (under_way_ != nullptr) scheduler_.publish_drawn(next);
    totals_.num_rows += output.num_tokens;
    ended_.clear();
  }
  output.finished.swap(finished_);
  return output;
}

std::int32_t Engine::Impl::shrink_steps() {
  const std::int32_t rows = tried_rows_ / 2;
  if (rows > 0) scheduler_.step_limit().lower(rows);
  return rows;
}

void Engine::Impl::begin(Step* step) {
  try {
    scheduler_.schedule(step);
    if (!draws_tokens_ || step->sequences.empty()) return;
    step->draws.collect(step->sequences, options_.eos_token_ids);
    tried_rows_ = step->batch.num_tokens();
    runner_->begin(step->batch, step->draws.draws());
  } catch (...) {
    fail_steps();
    throw;
  }
}

bool Engine::Impl::can_begin_behind(const Step& step) {
  // A token that the host draws from logits is not there for the next step.
  if (!options_.runs_ahead || !draws_tokens_ || !step.draws.host_rows().empty()) return false;
  scheduler_.advance(step);
  return scheduler_.can_plan_ahead();
}

void Engine::Impl::end(Step* step) {
  const std::size_t num_host_rows =
      draws_tokens_ ? step->draws.host_rows().size() : step->batch.logits_rows.size();
  const std::size_t size = num_host_rows * static_cast<std::size_t>(vocab_size_);
  tried_rows_ = step->batch.num_tokens();
  try {
    if (logits_.size() < size) logits_.resize(size);
    const std::span<float> logits = std::span(logits_).first(size);
    if (draws_tokens_) {
      runner_->end(step->draws.draws(), step->draws.host_rows(), logits);
    } else {
      runner_->forward(step->batch, logits);
    }
  } catch (...) {
    fail_steps();
    throw;
  }
}

void Engine::Impl::fail_steps() {
  if (draws_tokens_) runner_->drop_steps();
  scheduler_.rollback();
  under_way_ = nullptr;
}

RequestWork& Engine::Impl::work_of(RequestState& state) {
  if (state.work_step != step_number_) {
    state.work_step = step_number_;
    state.work_index = output_.work.size();
    output_.work.push_back({state.request.id, 0, 0, false});
  }
  return output_.work[state.work_index];
}

void Engine::Impl::count_rows(const ScheduledSequence& entry) {
  if (entry.sequence == nullptr) {
    totals_.num_dropped_rows += entry.num_rows;
    return;
  }
  output_.num_tokens += entry.num_rows;
  Sequence& sequence = *entry.sequence;
  RequestState& state = *sequence.request;
  RequestWork& work = work_of(state);
  const std::int32_t num_prompt = sequence.num_prompt_tokens;
  std::int32_t num_decodes = 0;
  for (std::int32_t row = entry.begin; row < entry.begin + entry.num_rows; ++row) {
    if (row >= num_prompt) {
      if (row - num_prompt < sequence.num_decoded_tokens) {
        ++state.num_recomputed_tokens;
      } else {
        ++sequence.num_decoded_tokens;
        ++num_decodes;
      }
    } else if (state.has_prefill_ended || state.was_computed[static_cast<std::size_t>(row)]) {
      ++state.num_recomputed_tokens;
    } else {
      state.was_computed[static_cast<std::size_t>(row)] = true;
      --state.num_cached_tokens;
    }
  }
  work.num_decode_tokens += num_decodes;
  work.num_prefill_tokens += entry.num_rows - num_decodes;
  totals_.num_decode_rows += num_decodes;
  totals_.num_prefill_rows += entry.num_rows - num_decodes;
}

Engine::Impl::LogitsRow Engine::Impl::logits_row(const Step& step, std::int32_t row) const {
  LogitsRow result;
  if (LogitsScan* scan = runner_->logits_scan()) result.maxima = scan->row(row);
  if (draws_tokens_) {
    result.draws = step.draws.draws_of(row);
    if (!result.draws.empty()) return result;
    row = step.draws.host_place(row);
  }
  const auto vocab = static_cast<std::size_t>(vocab_size_);
  result.logits = std::span(logits_).subspan(static_cast<std::size_t>(row) * vocab, vocab);
  return result;
}

void Engine::Impl::use_logits(const Step& step, const ScheduledSequence& entry) {
  if (entry.sequence == nullptr) return;
  Sequence& sequence = *entry.sequence;
  RequestState& state = *sequence.request;
  if (state.has_ended) return;
  if (sequence.wants_prompt_logprobs() && !collect_prompt_logprobs(step, entry, state)) {
    return fail(state);
  }
  if (!entry.draws) return;

  const LogitsRow row = logits_row(step, entry.first_logits_row + entry.num_logits_rows - 1);
  if (state.has_prefill_ended) {
    advance(state, sequence.order.choice, row);
  } else {
    state.has_prefill_ended = true;
    sequence.num_logprob_rows = -1;
    totals_.prefix_queries_tokens += sequence.num_prompt_tokens;
    totals_.prefix_hits_tokens += state.num_cached_tokens;
    if (state.request.params.max_tokens > 0) work_of(state).first_token = true;
    start_choices(state, row);
  }
  if (!state.has_ended && state.num_open_choices == 0) collect(state);
}

bool Engine::Impl::collect_prompt_logprobs(const Step& step, const ScheduledSequence& entry,
                                           RequestState& state) {
  Sequence& sequence = *entry.sequence;
  const std::int32_t num_top = state.request.params.logprobs.value_or(0);
  for (std::int32_t i = 0; i < entry.num_logits_rows; ++i) {
    const std::int32_t position = sequence.num_logprob_rows++;
    if (position + 1 == sequence.num_prompt_tokens) break;
    const TokenId next = sequence.tokens[static_cast<std::size_t>(position) + 1];
    auto found =
        sampler_.logprobs(logits_row(step, entry.first_logits_row + i).logits, next, num_top);
    if (!found) return false;
    state.prompt_logprobs.push_back(std::move(*found));
  }
  return true;
}

void Engine::Impl::start_choices(RequestState& state, const LogitsRow& row) {
  for (std::int32_t i = 0; i < state.request.num_choices && !state.has_ended; ++i) {
    ChoiceState& choice = i == 0 ? *state.choices.front() : open_choice(state);
    if (state.request.params.max_tokens <= 0) {
      end_choice(state, choice, FinishReason::kLength);
      continue;
    }
    LogitsRow own = row;
    if (!row.draws.empty()) own.draws = row.draws.subspan(static_cast<std::size_t>(i), 1);
    advance(state, i, own);
    const bool is_open = choice.output.finish_reason == FinishReason::kNone;
    if (i > 0 && is_open && !state.has_ended) scheduler_.add(&choice.sequence);
  }
}

void Engine::Impl::advance(RequestState& state, std::int32_t index, const LogitsRow& row) {
  ChoiceState& choice = *state.choices[static_cast<std::size_t>(index)];
  Sequence& sequence = choice.sequence;
  const std::optional<TokenId> token = next_token(sequence, index, row);
  if (!token) return fail(state);
  if (state.request.params.logprobs) {
    auto found = sampler_.logprobs(row.logits, *token, *state.request.params.logprobs);
    if (!found) return fail(state);
    choice.output.logprobs.push_back(std::move(*found));
  }
  sequence.add(*token);
  FinishReason reason = choice.stop_checker.append(*token);
  if (reason == FinishReason::kNone && sequence.size() >= sequence.max_size) {
    reason = FinishReason::kLength;
  }
  if (reason != FinishReason::kNone) end_choice(state, choice, reason);
}

std::optional<TokenId> Engine::Impl::next_token(const Sequence& sequence, std::int32_t index,
                                                const LogitsRow& row) {
  if (row.draws.empty()) {
    return sampler_.sample(row.logits, sampling_context(sequence, index, options_.eos_token_ids),
                           row.maxima);
  }
  const TokenId drawn = row.draws.front().token;
  return drawn == kNoToken ? std::nullopt : std::optional(drawn);
}

void Engine::Impl::end_choice(RequestState& state, ChoiceState& choice, FinishReason reason) {
  Sequence& sequence = choice.sequence;
  sequence.forget_unknown();
  scheduler_.remove(&sequence);
  if (under_way_ != nullptr) {
    // What the step computes for it is nobody's.
    for (ScheduledSequence& entry : under_way_->sequences) {
      if (entry.sequence == &sequence) entry.sequence = nullptr;
    }
  }
  const auto generated = sequence.range(sequence.num_prompt_tokens, sequence.num_generated());
  choice.output.token_ids.assign(generated.begin(), generated.end());
  choice.output.text = choice.stop_checker.take_text();
  choice.output.finish_reason = reason;
  const auto num_kept = static_cast<std::size_t>(choice.stop_checker.num_kept_tokens());
  if (choice.output.logprobs.size() > num_kept) choice.output.logprobs.resize(num_kept);
  --state.num_open_choices;
}

void Engine::Impl::fail(RequestState& state) {
  state.error = "the model's logits hold NaN or infinity, or leave no token to choose";
  for (auto& choice : state.choices) {
    if (choice->output.finish_reason == FinishReason::kNone) {
      end_choice(state, *choice, FinishReason::kNone);
    }
  }
  collect(state);
}

void Engine::Impl::collect(RequestState& state) {
  RequestOutput output;
  output.id = state.request.id;
  output.error = std::move(state.error);
  output.num_prompt_tokens = static_cast<std::int32_t>(state.request.prompt.size());
  output.num_cached_tokens = state.num_cached_tokens;
  output.num_recomputed_tokens = state.num_recomputed_tokens;
  output.prompt_logprobs = std::move(state.prompt_logprobs);
  output.choices.reserve(state.choices.size());
  for (auto& choice : state.choices) {
    output.num_completion_tokens += choice->sequence.num_generated();
    output.num_preemptions += choice->sequence.num_preemptions;
    output.choices.push_back(std::move(choice->output));
  }
  finished_.push_back(std::move(output));
  state.has_ended = true;
  if (const auto it = requests_.find(state.request.id); it != requests_.end()) {
    ended_.push_back(std::move(it->second));
    requests_.erase(it);
  }
}

void Engine::Impl::cancel(RequestId id) {
  const auto it = requests_.find(id);
  if (it == requests_.end()) return;
  RequestState& state = *it->second;
  while (static_cast<std::int32_t>(state.choices.size()) < state.request.num_choices) {
    open_choice(state);
  }
  for (auto& choice : state.choices) {
    if (choice->output.finish_reason == FinishReason::kNone) {
      end_choice(state, *choice, FinishReason::kCancelled);
    }
  }
  collect(state);
  ended_.clear();
}

std::int32_t Engine::Impl::cached_prefix_tokens(std::span<const TokenId> prompt) const {
  const auto limit = static_cast<std::int32_t>(prompt.size()) - 1;
  return limit <= 0 ? 0 : scheduler_.blocks().cached_tokens(prompt, limit);
}

EngineStats Engine::Impl::stats() const {
  EngineStats stats = totals_;
  for (const auto& [id, state] : requests_) {
    if (!state->choices.front()->sequence.was_admitted) {
      ++stats.num_waiting;
      stats.waiting_prompt_tokens += static_cast<std::int64_t>(state->request.prompt.size());
    }
  }
  ++stats_number_;
  for (const Sequence* sequence : scheduler_.running()) {
    if (std::exchange(sequence->request->counted_in_stats, stats_number_) != stats_number_) {
      ++stats.num_running;
    }
    // All but a sequence's last blocks are full, and shared ones are.
    stats.num_empty_slots +=
        static_cast<std::int32_t>(sequence->blocks.size()) * scheduler_.blocks().block_size() -
        sequence->num_computed_tokens;
  }
  stats.num_running_seqs = static_cast<std::int32_t>(scheduler_.running().size());
  const BlockPool& pool = scheduler_.blocks().pool();
  stats.num_blocks = pool.num_blocks();
  stats.num_cached_blocks = pool.num_evictable();
  stats.num_free_blocks = pool.num_free() + pool.num_evictable();
  stats.num_preemptions = scheduler_.num_preemptions();
  return stats;
}

Engine::Engine(const EngineOptions& options, ModelRunner* runner, const Tokenizer* tokenizer)
    : impl_(std::make_unique<Impl>(options, runner, tokenizer)) {}
Engine::~Engine() = default;
std::int32_t Engine::max_sequence_tokens() const { return impl_->max_sequence_tokens(); }
void Engine::add(Request request) { impl_->add(std::move(request)); }
StepOutput& Engine::step() { return impl_->step(); }
std::int32_t Engine::shrink_steps() { return impl_->shrink_steps(); }
std::int32_t Engine::grow_steps() { return impl_->grow_steps(); }
void Engine::cancel(RequestId id) { impl_->cancel(id); }
bool Engine::has_work() const { return impl_->has_work(); }
std::int32_t Engine::cached_prefix_tokens(std::span<const TokenId> prompt) const {
  return impl_->cached_prefix_tokens(prompt);
}
EngineStats Engine::stats() const { return impl_->stats(); }

}  // namespace batchmill
