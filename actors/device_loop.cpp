#include "actors/device_loop.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <new>
#include <stdexcept>

#include "actors/line_work.h"
#include "actors/work_share.h"

namespace batchmill {
namespace {

// A step that failed is tried again this often before the device counts as broken.
constexpr std::int32_t kMaxFailedSteps = 3;

}  // namespace

DeviceLoop::DeviceLoop(std::uint32_t device, std::string name, const EngineOptions& options,
                       std::unique_ptr<StepEngine> engine, std::shared_ptr<std::mutex> runner_mutex,
                       Callbacks callbacks, const Clock* clock, LiveStats* live)
    : device_(device),
      name_(std::move(name)),
      options_(options),
      engine_(std::move(engine)),
      runner_mutex_(std::move(runner_mutex)),
      callbacks_(std::move(callbacks)),
      clock_(clock),
      live_(live),
      stats_(engine_->stats()) {
  thread_ = std::thread([this] { run(); });
}

DeviceLoop::~DeviceLoop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

void DeviceLoop::push(std::vector<WorkItem> items) {
  const std::lock_guard lock(mutex_);
  inbox_.insert(inbox_.end(), std::make_move_iterator(items.begin()),
                std::make_move_iterator(items.end()));
  inbox_filled_ = true;
  is_idle_ = false;
  wake_.notify_all();
}

void DeviceLoop::drop_job(const JobId& job) {
  const std::lock_guard lock(mutex_);
  dropped_jobs_.push_back(job);
  wake_.notify_all();
}

void DeviceLoop::drain() {
  const std::lock_guard lock(mutex_);
  draining_ = true;
  is_idle_ = false;
  wake_.notify_all();
}

bool DeviceLoop::wait_idle(std::chrono::steady_clock::time_point deadline) {
  std::unique_lock lock(mutex_);
  return idle_.wait_until(lock, deadline, [this] { return is_idle_; });
}

void DeviceLoop::give_back() {
  const std::lock_guard lock(mutex_);
  give_back_ = true;
  is_idle_ = false;
  wake_.notify_all();
}

EngineStats DeviceLoop::stats() const {
  const std::lock_guard lock(mutex_);
  return stats_;
}

void DeviceLoop::run() {
  const std::lock_guard runner_lock(*runner_mutex_);
  try {
    while (true) {
      {
        std::unique_lock lock(mutex_);
        stats_ = engine_->stats();
        const bool idle = lines_.empty() && inbox_.empty() && !give_back_;
        if (idle && (draining_ || pull_outstanding_)) {
          is_idle_ = true;
          idle_.notify_all();
        }
        wake_.wait(lock, [&] {
          return stopping_ || give_back_ || !inbox_.empty() || !dropped_jobs_.empty() ||
                 engine_->has_work() || (!draining_ && !pull_outstanding_) ||
                 (draining_ && !is_idle_);
        });
        if (stopping_) return;
      }
      take_inbox();
      ask_for_more();
      if (engine_->has_work() && !step()) return;
    }
  } catch (const std::exception& error) {
    callbacks_.failed(error.what());
  }
}

void DeviceLoop::take_inbox() {
  std::vector<WorkItem> items;
  std::vector<JobId> dropped;
  bool draining = false;
  bool give_back = false;
  {
    const std::lock_guard lock(mutex_);
    items.swap(inbox_);
    dropped.swap(dropped_jobs_);
    if (std::exchange(inbox_filled_, false)) pull_outstanding_ = false;
    draining = draining_;
    give_back = std::exchange(give_back_, false);
  }
  if (lines_.empty() && !items.empty()) first_step_ahead_ = true;
  for (WorkItem& item : items) add_line(std::move(item));
  for (const JobId& job : dropped) {
    for (auto& [key, line] : lines_) {
      if (key.job == job) line.dropped = true;
    }
    for (const auto& [id, part] : parts_) {
      if (part.line->dropped) engine_->cancel(id);
    }
  }
  if (draining || give_back) release(give_back);
}

// Takes lines back from the engine: those that have not started, or all.
void DeviceLoop::release(bool started_too) {
  for (auto& [key, line] : lines_) {
    if (started_too || line.admitted_us == 0) line.dropped = true;
  }
  for (const auto& [id, part] : parts_) {
    if (part.line->dropped) engine_->cancel(id);
  }
}

void DeviceLoop::add_line(WorkItem item) {
  const LineKey key = item.key;
  if (const auto it = lines_.find(key); it != lines_.end()) {
    // It was handed out anew while it runs: only the answer to the latest attempt counts.
    if (item.attempt > it->second.item.attempt) {
      it->second.item.attempt = item.attempt;
      it->second.item.plan_key = std::move(item.plan_key);
    }
    return;
  }
  Line& line = lines_[key];
  line.item = std::move(item);
  line.num_missing = line.item.prompts.size();
  line.outputs.resize(line.item.prompts.size());
  try {
    const LineWork work = decode_line_work(line.item.request);
    for (std::size_t p = 0; p < line.item.prompts.size(); ++p) {
      Request request;
      request.id = next_request_++;
      request.prompt = line.item.prompts[p];
      request.num_choices = work.num_choices;
      request.first_choice = static_cast<std::int32_t>(p) * work.num_choices;
      request.params = work.params;
      if (p == 0) request.num_wanted_tokens = line.item.num_wanted_tokens;
      const RequestId id = request.id;
      engine_->add(std::move(request));
      parts_.emplace(id, Part{&line, p});
    }
  } catch (const std::exception& error) {
    for (auto it = parts_.begin(); it != parts_.end();) {
      if (it->second.line == &line) {
        engine_->cancel(it->first);
        it = parts_.erase(it);
      } else {
        ++it;
      }
    }
    complete(line, "internal_error", error.what());
    lines_.erase(key);
  }
}

// Keeps about one step's worth of prompts waiting, so that a freed slot is refilled at once. An
// idle device asks for one line and, only when it has made a step of that, for more: the first
// lines of a job are planned before those that belong beside them, and lines in the plan's order
// compute their prefixes once.
void DeviceLoop::ask_for_more() {
  if (first_step_ahead_ && engine_->has_work()) return;
  {
    const std::lock_guard lock(mutex_);
    if (draining_ || pull_outstanding_) return;
  }
  const EngineStats stats = engine_->stats();
  const bool enough = stats.num_waiting >= options_.max_num_seqs ||
                      stats.waiting_prompt_tokens >= 2LL * options_.max_num_batched_tokens;
  if (enough) return;
  pull_outstanding_ = true;
  WorkRequest request;
  request.device = device_;
  request.max_lines = lines_.empty() ? 1 : static_cast<std::uint32_t>(options_.max_num_seqs);
  request.max_tokens = static_cast<std::uint64_t>(2 * options_.max_num_batched_tokens);
  callbacks_.pull(request);
}

// False when the device is broken.
bool DeviceLoop::step() {
  first_step_ahead_ = false;
  const std::int64_t start_us = clock_->steady_us();
  StepOutput* output = nullptr;
  try {
    output = &engine_->step();
    failed_steps_ = 0;
  } catch (const std::bad_alloc&) {
    return make_smaller_steps() || count_failure("there is no memory for a step");
  } catch (const std::exception& error) {
    return count_failure(error.what());
  }
  account(*output, static_cast<std::uint64_t>(clock_->steady_us() - start_us));
  for (RequestOutput& finished : output->finished) collect(std::move(finished));
  if (growth_.succeeded()) make_larger_steps();
  return true;
}

// False when the device is broken.
bool DeviceLoop::count_failure(const char* what) {
  ++failed_steps_;
  spdlog::error("a step on {} failed ({} in a row): {}", name_, failed_steps_, what);
  if (failed_steps_ < kMaxFailedSteps) return true;
  callbacks_.failed(fmt::format("{} steps in a row failed: {}", failed_steps_, what));
  return false;
}

// The device had no memory for a step: lines that have not started go back to the plan, where
// another device may find them, the others run in smaller steps. False if those cannot be smaller.
bool DeviceLoop::make_smaller_steps() {
  const std::int32_t rows = engine_->shrink_steps();
  if (rows == 0) return false;
  growth_.failed();
  spdlog::warn("{} had no memory for a step: at most {} tokens share one for now", name_, rows);
  release(false);
  return true;
}

// Others may have given memory back.
void DeviceLoop::make_larger_steps() {
  const std::int32_t rows = engine_->grow_steps();
  if (rows > 0) {
    spdlog::debug("{} tries steps of {} tokens", name_, rows);
  } else {
    growth_.set_unlimited();
    spdlog::info("{} has steps of full size again", name_);
  }
}

void DeviceLoop::account(const StepOutput& output, std::uint64_t step_us) {
  // Two shares a request: its prefill rows and its decode rows.
  std::vector<std::uint64_t>& rows = step_rows_;
  rows.clear();
  for (const RequestWork& work : output.work) {
    rows.push_back(static_cast<std::uint64_t>(work.num_prefill_tokens));
    rows.push_back(static_cast<std::uint64_t>(work.num_decode_tokens));
  }
  const std::span<const std::uint64_t> shares_us = shares_.divide(step_us, rows);
  const std::int64_t now_us = clock_->now_us();
  const std::int64_t now_s = clock_->steady_s();
  job_tokens_.clear();
  for (std::size_t i = 0; i < output.work.size(); ++i) {
    const auto it = parts_.find(output.work[i].id);
    if (it == parts_.end()) continue;
    Line& line = *it->second.line;
    line.prefill_us += shares_us[2 * i];
    line.decode_us += shares_us[2 * i + 1];
    if (line.admitted_us == 0) line.admitted_us = now_us - static_cast<std::int64_t>(step_us);
    if (output.work[i].first_token && line.first_token_us == 0) line.first_token_us = now_us;
    const JobId& job = line.item.key.job;
    auto sum = std::ranges::find(job_tokens_, job, [](const auto& entry) { return entry.first; });
    if (sum == job_tokens_.end()) sum = job_tokens_.insert(sum, {job, 0});
    sum->second += rows[2 * i] + rows[2 * i + 1];
  }
  for (const auto& [job, tokens] : job_tokens_) live_->tokens_computed(job, tokens, now_s);
}

void DeviceLoop::collect(RequestOutput output) {
  const auto it = parts_.find(output.id);
  if (it == parts_.end()) return;
  Line& line = *it->second.line;
  for (const Choice& choice : output.choices) {
    line.cut_short |= choice.finish_reason == FinishReason::kCancelled;
  }
  if (line.error.empty()) line.error = output.error;
  line.outputs[it->second.prompt] = std::move(output);
  parts_.erase(it);
  if (--line.num_missing > 0) return;
  const LineKey key = line.item.key;
  if (line.cut_short) {
    callbacks_.returned({key});
  } else {
    complete(line, line.error.empty() ? "" : "internal_error", line.error);
  }
  lines_.erase(key);
}

void DeviceLoop::complete(Line& line, std::string error_code, std::string error_message) {
  LineCompletion completion;
  completion.item = std::move(line.item);
  completion.device = name_;
  if (error_code.empty()) completion.outputs = std::move(line.outputs);
  completion.error_code = std::move(error_code);
  completion.error_message = std::move(error_message);
  completion.prefill_us = line.prefill_us;
  completion.decode_us = line.decode_us;
  completion.admitted_us = line.admitted_us;
  completion.first_token_us = line.first_token_us;
  callbacks_.completed(std::move(completion));
}

}  // namespace batchmill
