#include "actors/dispatcher.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <chrono>
#include <utility>

namespace batchmill {
namespace {

constexpr std::chrono::seconds kRetryAfter{1};  // after a write that the disk refused

LineCompletion poison_failure(WorkItem item) {
  LineCompletion completion;
  completion.error_code = "internal_error";
  completion.error_message =
      fmt::format("the process ended {} times while this line was running, the last time alone",
                  item.attempt - 1);
  completion.item = std::move(item);
  return completion;
}

LineCompletion refused_failure(WorkPicker::Refused refused) {
  LineCompletion completion;
  completion.error_code = std::move(refused.error_code);
  completion.error_message = std::move(refused.error_message);
  completion.item = std::move(refused.item);
  return completion;
}

void fail_lines(WorkPicker& picker, const ActorContext& context) {
  for (WorkItem& poisoned : picker.take_poisoned()) {
    spdlog::error("line {} of {} has ended the process {} times: failing it", poisoned.key.line,
                  poisoned.key.job.to_string(), poisoned.attempt - 1);
    send_to<WriterActor>(context.directory, done_atom::value, poison_failure(std::move(poisoned)));
  }
  for (WorkPicker::Refused& refused : picker.take_refused()) {
    send_to<WriterActor>(context.directory, done_atom::value, refused_failure(std::move(refused)));
  }
}

void feed_devices(DispatcherState& state, ActorContext& context, OpenAttempts& attempts) {
  const std::vector<DeviceWorkerActor> devices = context.directory.devices();
  for (auto it = state.hungry.begin(); it != state.hungry.end();) {
    const std::uint32_t device = it->first;
    std::vector<WorkItem> items =
        device < devices.size() ? state.picker->pick(it->second) : std::vector<WorkItem>();
    fail_lines(*state.picker, context);
    if (items.empty()) {
      ++it;
      continue;
    }
    std::map<JobId, std::uint64_t> lines;
    for (const WorkItem& item : items) {
      if (item.attempt >= WorkPicker::kAttemptAlone) {
        spdlog::warn("line {} of {} runs alone: the process ended itself in its last {} attempts",
                     item.key.line, item.key.job.to_string(), item.attempt - 1);
      }
      ++lines[item.key.job];
      attempts.add(item.key);
    }
    for (const auto& [job, count] : lines) context.live->lines_started(job, count);
    caf::anon_send(devices[device], work_atom::value, std::move(items));
    it = state.hungry.erase(it);
  }
}

// A device that asked for more while its last lines ran is idle when those have ended, and an idle
// one asks for one line (DeviceLoop::ask_for_more).
void limit_idle_devices(DispatcherState& state) {
  for (auto& [device, request] : state.hungry) {
    if (state.picker->num_in_flight(device) == 0) request.max_lines = 1;
  }
}

}  // namespace

DispatcherActor::behavior_type dispatcher(DispatcherActor::stateful_pointer<DispatcherState> self,
                                          std::shared_ptr<ActorContext> context,
                                          std::vector<std::string> device_fingerprints,
                                          std::shared_ptr<OpenAttempts> attempts,
                                          WorkPicker::Fit fit) {
  end_on_exceptions(self);
  self->state.picker =
      std::make_unique<WorkPicker>(context->store, std::move(device_fingerprints), std::move(fit));
  const auto feed = [self, context, attempts] {
    try {
      feed_devices(self->state, *context, *attempts);
    } catch (const StorageError& error) {
      if (error.kind() != StorageError::Kind::kFull) throw;
      if (std::exchange(self->state.retry_scheduled, true)) return;
      spdlog::error("admission waits for disk space: {}", error.what());
      context->options.on_storage_full(error.what());
      self->delayed_send(self, kRetryAfter, plan_atom::value);
    }
  };
  return {
      [=](pull_atom, const WorkRequest& request) {
        self->state.hungry[request.device] = request;
        feed();
      },
      [=](plan_atom) {
        self->state.retry_scheduled = false;
        self->state.picker->plan_changed();
        feed();
      },
      [=](done_atom, const std::vector<LineKey>& lines) {
        attempts->remove(lines);
        self->state.picker->done(lines);
        limit_idle_devices(self->state);
        feed();
      },
      [=](returned_atom, const std::vector<LineKey>& lines) {
        attempts->remove(lines);
        forgive_attempts(*context->store, lines);
        self->state.picker->returned(lines);
        limit_idle_devices(self->state);
        feed();
      },
      [=](changed_atom, const JobId& job) {
        self->state.picker->job_changed(job);
        feed();
      },
      [=](lost_atom, std::uint32_t device) {
        self->state.hungry.erase(device);
        // Their attempts stay counted: one of them may be why.
        const std::vector<LineKey> lines = self->state.picker->device_lost(device);
        attempts->remove(lines);
        for (const LineKey& line : lines) context->live->lines_returned(line.job, 1);
        feed();
      },
      [=](replaced_atom, std::uint32_t device, const std::string& fingerprint) {
        self->state.picker->device_replaced(device, fingerprint);
        feed();
      },
      [=](flush_atom, bool) { return true; },
  };
}

}  // namespace batchmill
