#include "actors/writer.h"

#include <spdlog/spdlog.h>

#include <chrono>
#include <optional>
#include <stdexcept>

#include "actors/output_line.h"
#include "queue/batch_line.h"

namespace batchmill {
namespace {

constexpr std::chrono::seconds kRetryAfter{1};  // after a write that the disk refused

LineUsage usage_of(const LineCompletion& completion) {
  LineUsage usage;
  for (const RequestOutput& output : completion.outputs) {
    const auto prompt = static_cast<std::uint64_t>(output.num_prompt_tokens);
    const auto cached = static_cast<std::uint64_t>(output.num_cached_tokens);
    usage.prompt_tokens += prompt;
    usage.prompt_cached_tokens += cached;
    usage.prompt_computed_tokens += prompt - cached;
    usage.recomputed_tokens += static_cast<std::uint64_t>(output.num_recomputed_tokens);
    usage.completion_tokens += static_cast<std::uint64_t>(output.num_completion_tokens);
    usage.preemptions += static_cast<std::uint64_t>(output.num_preemptions);
  }
  usage.prefill_us = completion.prefill_us;
  usage.decode_us = completion.decode_us;
  return usage;
}

// What the plan entry says of the line. If it cannot be read, the device failed the line for it,
// and only the uploaded line still says whose failure it is.
LineWork work_of(const LineCompletion& completion, const ActorContext& context) {
  try {
    return decode_line_work(completion.item.request);
  } catch (const std::runtime_error&) {
    if (completion.error_code.empty()) throw;
    LineWork work;
    const std::optional<StoredLine> line = context.store->line(completion.item.key);
    if (line) work.custom_id = parse_batch_line(line->bytes, {}).custom_id.value_or("");
    return work;
  }
}

LineResult result_of(const LineCompletion& completion, const ActorContext& context) {
  const WorkItem& item = completion.item;
  const LineWork work = work_of(completion, context);
  LineResult result;
  result.key = item.key;
  result.attempt = item.attempt;
  result.custom_id = work.custom_id;
  result.has_custom_id = true;
  result.model = item.model;
  result.device = completion.device;
  result.times = {work.queued_us, completion.admitted_us, completion.first_token_us,
                  context.clock->now_us()};
  if (!completion.error_code.empty()) {
    result.outcome = LineOutcome::kFailed;
    result.error_code = completion.error_code;
    result.output =
        failure_output(item.key, work.custom_id, completion.error_code, completion.error_message);
    return result;
  }
  const ModelCatalog::Entry* model = context.catalog->find(item.model);
  Success success;
  success.key = item.key;
  success.work = &work;
  success.prompts = &item.prompts;
  success.outputs = &completion.outputs;
  success.tokenizer = model == nullptr ? nullptr : model->served.model->tokenizer();
  success.fingerprint = model == nullptr ? "" : model->served.model->fingerprint();
  success.created_s = context.clock->now_s();
  result.outcome = LineOutcome::kCompleted;
  result.output = success_output(success);
  result.usage = usage_of(completion);
  result.price = context.catalog->price(item.model);
  return result;
}

// The jobs that have all their results. What the disk refuses here is done by the next group, or by
// the supervisor's next tick.
void end_jobs(const ActorContext& context) {
  try {
    for (const JobId& job : context.store->end_finished_jobs(context.clock->now_s())) {
      const JobCounters counters = context.store->job(job).value().counters;
      spdlog::info("{} has ended: {} lines done, {} failed", job.to_string(), counters.completed,
                   counters.failed);
    }
  } catch (const StorageError& error) {
    if (error.kind() != StorageError::Kind::kFull) throw;
    spdlog::error("jobs end when the disk has space: {}", error.what());
    context.options.on_storage_full(error.what());
  }
}

// Writes the group, or throws StorageError with nothing of it written or counted.
void write_group(const std::vector<LineCompletion>& group, ActorContext& context) {
  std::vector<LineKey> keys;
  for (const LineCompletion& completion : group) keys.push_back(completion.item.key);
  const std::vector<std::uint32_t> attempts = context.store->attempts(keys);

  keys.clear();  // from here on: of those taken. A late answer's line is still in flight.
  std::vector<LineResult> results;
  std::vector<PlanKey> plan_keys;
  for (std::size_t i = 0; i < group.size(); ++i) {
    const WorkItem& item = group[i].item;
    // A worker that was given up may answer late: its attempt is no longer the one in flight. (A
    // line that failed for its attempts was never started anew, so its count is one behind.)
    if (item.attempt < attempts[i]) {
      spdlog::warn("a late answer to attempt {} of line {} of {} is dropped", item.attempt,
                   item.key.line, item.key.job.to_string());
      continue;
    }
    keys.push_back(item.key);
    results.push_back(result_of(group[i], context));
    plan_keys.push_back(item.plan_key);
  }
  if (results.empty()) return;
  context.store->commit_results(results, plan_keys, context.clock->now_s());
  if (context.life_mark != nullptr) context.life_mark->note_answer();

  for (const LineKey& key : keys) {
    context.live->lines_returned(key.job, 1);
    context.live->line_finished(key.job, context.clock->steady_s());
  }
  send_to<DispatcherActor>(context.directory, done_atom::value, std::move(keys));
  end_jobs(context);
}

}  // namespace

WriterActor::behavior_type writer(WriterActor::stateful_pointer<WriterState> self,
                                  std::shared_ptr<ActorContext> context) {
  end_on_exceptions(self);
  // True when nothing is left to write.
  const auto flush = [self, context] {
    if (self->state.pending.empty()) return true;
    try {
      write_group(self->state.pending, *context);
      self->state.pending.clear();
      return true;
    } catch (const StorageError& error) {
      if (error.kind() != StorageError::Kind::kFull) throw;
      spdlog::error("results wait for disk space: {}", error.what());
      context->options.on_storage_full(error.what());
      return false;
    }
  };
  return {
      [=](done_atom, const LineCompletion& completion) {
        self->state.pending.push_back(completion);
        if (self->state.flush_scheduled) return;
        self->state.flush_scheduled = true;
        self->send(self, flush_atom::value);
      },
      [=](flush_atom) {
        self->state.flush_scheduled = false;
        if (flush()) return;
        self->state.flush_scheduled = true;
        self->delayed_send(self, kRetryAfter, flush_atom::value);
      },
      [=](flush_atom, bool) { return flush(); },
  };
}

}  // namespace batchmill
