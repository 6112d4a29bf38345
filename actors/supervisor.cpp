#include "actors/supervisor.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "actors/caretaker.h"
#include "actors/control.h"
#include "actors/dispatcher.h"
#include "actors/intake.h"
#include "actors/plan_fit.h"
#include "actors/preparer.h"
#include "actors/writer.h"

namespace batchmill {
namespace {

constexpr std::chrono::seconds kTick{1};
constexpr std::size_t kMaxRestarts = 8;  // within …
constexpr std::int64_t kRestartWindowS = 60;  // … these many seconds
constexpr std::size_t kDrainEntries = 10'000;  // plan entries of ended jobs removed a tick

using Self = caf::stateful_actor<SupervisorState>*;
using Context = std::shared_ptr<ActorContext>;
using Setup = std::shared_ptr<SupervisorSetup>;

void start_intake(Self self, const Context& context) {
  context->directory.set(self->spawn<caf::monitored + caf::detached>(intake, context));
}

void start_control(Self self, const Context& context) {
  context->directory.set(self->spawn<caf::monitored>(control, context));
}

void start_caretaker(Self self, const Context& context) {
  context->directory.set(self->spawn<caf::monitored>(caretaker, context));
}

void start_preparer(Self self, const Context& context, const SupervisorSetup& setup) {
  context->directory.set(self->spawn<caf::monitored>(preparer, context, setup.line_preparer));
}

// Dispatcher, writer and devices share what is in flight, so they live and die together; what was
// in flight is still in the plan. None of an older group may decide on lines any more.
void start_device_group(Self self, const Context& context, const SupervisorSetup& setup,
                        const std::shared_ptr<OpenAttempts>& attempts) {
  context->live->forget_running();
  context->directory.set(self->spawn<caf::monitored>(writer, context));
  std::vector<std::string> fingerprints = setup.device_fingerprints;
  for (const std::uint32_t lost : self->state.lost) fingerprints[lost].clear();
  context->directory.set(
      self->spawn<caf::monitored>(dispatcher, context, std::move(fingerprints), attempts,
                                  WorkPicker::Fit(PlanFit(context, setup.line_preparer))));
  std::vector<DeviceWorkerActor> devices;
  for (const DeviceSetup& device : setup.devices) {
    const bool is_lost = self->state.lost.contains(device.index);
    devices.push_back(is_lost ? DeviceWorkerActor()
                              : self->spawn<caf::monitored>(device_worker, context, device));
  }
  context->directory.set_devices(std::move(devices));
  // A device may have asked before it could be found.
  send_to<DispatcherActor>(context->directory, plan_atom::value);
}

template <class Handle>
void kill(Self self, const Handle& handle) {
  if (!handle) return;
  self->demonitor(handle.address());
  caf::anon_send_exit(handle, caf::exit_reason::kill);
}

void kill_device_group(Self self, const Context& context) {
  kill(self, context->directory.get<DispatcherActor>());
  kill(self, context->directory.get<WriterActor>());
  for (const DeviceWorkerActor& device : context->directory.devices()) kill(self, device);
}

// Ends one of the group that decides on lines. It may be in the middle of a message, so its end is
// waited for; whoever looks for it meanwhile finds nobody.
template <class Handle>
void end_decider(Self self, const Context& context, const caf::actor_addr& dead) {
  const Handle handle = context->directory.get<Handle>();
  context->directory.set(Handle());
  if (!handle || handle.address() == dead) return;
  self->state.ending.insert(handle.address());
  caf::anon_send_exit(handle, caf::exit_reason::kill);
}

// Ends what is left of the device group after one of it is dead. A device is not waited for, since
// its step may take long: it finds nobody to ask for lines, and what it still answers is told from
// the answers of the next group by the number of the attempt.
void end_device_group(Self self, const Context& context, const caf::actor_addr& dead) {
  const std::vector<DeviceWorkerActor> devices = context->directory.devices();
  context->directory.set_devices({});
  for (const DeviceWorkerActor& device : devices) kill(self, device);
  end_decider<DispatcherActor>(self, context, dead);
  end_decider<WriterActor>(self, context, dead);
}

template <class Handle>
bool is_from(const caf::down_msg& message, const Handle& handle) {
  return handle && handle.address() == message.source;
}

// Which device's worker the message is of, if it is of one.
std::optional<std::uint32_t> device_of(const Directory& directory, const caf::down_msg& message) {
  const std::vector<DeviceWorkerActor> devices = directory.devices();
  const auto device = std::ranges::find_if(
      devices, [&](const auto& candidate) { return is_from(message, candidate); });
  if (device == devices.end()) return std::nullopt;
  return static_cast<std::uint32_t>(device - devices.begin());
}

// True while starting anew may still help.
bool count_restart(Self self, const Context& context) {
  auto& restarts = self->state.restarts_s;
  const std::int64_t now_s = context->clock->steady_s();
  restarts.push_back(now_s);
  while (restarts.front() < now_s - kRestartWindowS) restarts.pop_front();
  return restarts.size() <= kMaxRestarts;
}

// The devices besides that run its model.
std::size_t num_others(Self self, const SupervisorSetup& setup, std::uint32_t device) {
  std::size_t others = 0;
  for (const DeviceSetup& other : setup.devices) {
    if (other.index != device && !self->state.lost.contains(other.index) &&
        setup.device_fingerprints[other.index] == setup.device_fingerprints[device]) {
      ++others;
    }
  }
  return others;
}

// The first half of what is said of a lost device.
std::string loss_text(const DeviceStates::State& state) {
  return fmt::format("the device {} is lost ({})", state.name, state.reason);
}

// Loads the model of a lost device onto another one, which takes as long as that takes.
void load_replacement(const caf::actor& supervisor, const Setup& setup, std::uint32_t lost) {
  try {
    if (std::optional<DeviceSetup> device = setup->replace(lost)) {
      caf::anon_send(supervisor, replaced_atom::value, std::move(*device));
    } else {
      caf::anon_send(supervisor, lost_atom::value, lost, std::string());
    }
  } catch (const std::exception& error) {
    caf::anon_send(supervisor, lost_atom::value, lost, std::string(error.what()));
  }
}

// An actor of its own loads it, in a thread of its own. It takes arguments rather than what a
// closure holds: CAF 0.17 reads those of a function that has none through a null pointer.
void replace_device(Self self, const Setup& setup, std::uint32_t lost) {
  self->spawn<caf::detached>(load_replacement, caf::actor_cast<caf::actor>(self), setup, lost);
}

void on_lost(Self self, const Context& context, const Setup& setup, std::uint32_t device) {
  self->state.lost.insert(device);
  send_to<DispatcherActor>(context->directory, lost_atom::value, device);
  const DeviceStates::State state = context->devices.state(device);
  const std::size_t others = num_others(self, *setup, device);
  std::string trouble = loss_text(state);
  spdlog::error("{}: the lines of {} {}", trouble, state.model,
                others > 0 ? fmt::format("run on the {} that go on", others) : "wait");
  context->devices.set_trouble(device, std::move(trouble), others == 0);
  if (others == 0) replace_device(self, setup, device);
}

void on_replaced(Self self, const Context& context, const Setup& setup,
                 const DeviceSetup& replacement) {
  const std::uint32_t index = replacement.index;
  const DeviceStates::State state = context->devices.state(index);
  std::string trouble =
      fmt::format("{}: the lines of {} run on {} until the process is started anew",
                  loss_text(state), state.model, replacement.name);
  spdlog::warn("{}", trouble);
  context->devices.set_trouble(index, std::move(trouble), false);
  setup->devices[index] = replacement;
  self->state.lost.erase(index);
  if (!self->state.ending.empty()) return;  // the next group begins with it
  std::vector<DeviceWorkerActor> devices = context->directory.devices();
  devices[index] = self->spawn<caf::monitored>(device_worker, context, replacement);
  context->directory.set_devices(std::move(devices));
  send_to<DispatcherActor>(context->directory, replaced_atom::value, index,
                           setup->device_fingerprints[index]);
}

void on_not_replaced(const Context& context, std::uint32_t device, const std::string& why) {
  const DeviceStates::State state = context->devices.state(device);
  std::string trouble = fmt::format(
      "{}: the lines of {} wait until the process is started anew, which tries the device again{}",
      loss_text(state), state.model, why.empty() ? "" : fmt::format("; {}", why));
  spdlog::error("{}", trouble);
  context->devices.set_trouble(device, trouble, true);
  context->options.on_lines_wait(trouble);
}

// Starting actors anew does not help a store that takes nothing more.
bool give_up_lost_store(const ActorContext& context, const SupervisorSetup& setup) {
  const std::string why = context.store->why_lost();
  if (!why.empty()) setup.on_fatal(why);
  return !why.empty();
}

// One of the device group is dead: the group starts anew when the others that decide on lines are,
// too.
void on_group_down(Self self, const Context& context, const Setup& setup,
                   const std::shared_ptr<OpenAttempts>& attempts, const caf::actor_addr& dead,
                   bool is_device) {
  end_device_group(self, context, dead);
  self->state.start_group = [=] {
    const std::vector<LineKey> lines = attempts->take_all();
    // No line can be blamed for the death of the dispatcher or of the writer.
    if (!is_device) forgive_attempts(*context->store, lines);
    start_device_group(self, context, *setup, attempts);
  };
  if (self->state.ending.empty()) std::exchange(self->state.start_group, nullptr)();
}

void on_down(Self self, const Context& context, const Setup& setup,
             const std::shared_ptr<OpenAttempts>& attempts, const caf::down_msg& message) {
  SupervisorState& state = self->state;
  if (state.stopping || give_up_lost_store(*context, *setup)) return;
  if (state.ending.erase(message.source) > 0) {
    if (state.ending.empty()) std::exchange(state.start_group, nullptr)();
    return;
  }
  const Directory& directory = context->directory;
  std::function<void()> start;
  std::string who;
  if (is_from(message, directory.get<IntakeActor>())) {
    who = "intake";
    start = [&] { start_intake(self, context); };
  } else if (is_from(message, directory.get<ControlActor>())) {
    who = "control";
    start = [&] { start_control(self, context); };
  } else if (is_from(message, directory.get<CaretakerActor>())) {
    who = "caretaker";
    start = [&] { start_caretaker(self, context); };
  } else if (is_from(message, directory.get<PreparerActor>())) {
    who = "preparer";
    start = [&] { start_preparer(self, context, *setup); };
  } else {
    const std::optional<std::uint32_t> device = device_of(directory, message);
    // A worker that gave up by itself has tried its device again before.
    if (device && message.reason == caf::exit_reason::user_shutdown &&
        setup->devices[*device].can_be_lost) {
      return on_lost(self, context, setup, *device);
    }
    if (!device && !is_from(message, directory.get<DispatcherActor>()) &&
        !is_from(message, directory.get<WriterActor>())) {
      return;  // one that was replaced already
    }
    who = device ? "a device worker" : "the dispatcher or the writer";
    start = [&, is_device = device.has_value()] {
      on_group_down(self, context, setup, attempts, message.source, is_device);
    };
  }
  const std::string reason = self->system().render(message.reason);
  if (!count_restart(self, context)) {
    setup->on_fatal(fmt::format("{} died {} times within {} s, last: {}", who,
                                state.restarts_s.size(), kRestartWindowS, reason));
    return;
  }
  spdlog::error("{} died ({}): starting anew", who, reason);
  start();
}

// When the job's deadline passes, in seconds of the steady clock, so that a wall clock that is set
// does not end jobs. What of it passed before this start is the wall clock's difference, at least
// 0.
std::int64_t steady_deadline_s(const Job& job, const Clock& clock) {
  const std::int64_t age_s = std::max<std::int64_t>(0, clock.now_s() - job.state.created_at_s);
  return clock.steady_s() + std::max<std::int64_t>(0, job.request.deadline_s - age_s);
}

void expire_jobs(SupervisorState& state, const Context& context) {
  JobStore& store = *context->store;
  std::map<JobId, std::int64_t> deadlines_s;
  for (const JobId& id : store.unfinished_jobs()) {
    const std::optional<Job> job = store.job(id);
    if (!job || job->request.deadline_s == 0) continue;
    const auto known = state.deadlines_s.find(id);
    const std::int64_t deadline_s =
        known != state.deadlines_s.end() ? known->second : steady_deadline_s(*job, *context->clock);
    deadlines_s[id] = deadline_s;
    if (context->clock->steady_s() < deadline_s) continue;
    if (!store.end_job(id, "batch_expired", context->clock->now_s())) continue;
    spdlog::info("{} has passed its deadline", id.to_string());
    send_to<DispatcherActor>(context->directory, changed_atom::value, id);
    for (const DeviceWorkerActor& device : context->directory.devices()) {
      caf::anon_send(device, changed_atom::value, id);
    }
  }
  state.deadlines_s = std::move(deadlines_s);
}

void on_tick(SupervisorState& state, const Context& context) {
  state.heap.give_back();
  expire_jobs(state, context);
  JobStore& store = *context->store;
  store.drain_plan(kDrainEntries);
  store.end_finished_jobs(context->clock->now_s());
  context->live->keep_only(store.unfinished_jobs());
  send_to<IntakeActor>(context->directory, tick_atom::value);
}

}  // namespace

caf::behavior supervisor(caf::stateful_actor<SupervisorState>* self,
                         std::shared_ptr<ActorContext> context, SupervisorSetup first_setup) {
  const auto setup = std::make_shared<SupervisorSetup>(std::move(first_setup));
  const auto attempts = std::make_shared<OpenAttempts>();
  self->set_down_handler(
      [=](const caf::down_msg& message) { on_down(self, context, setup, attempts, message); });
  start_device_group(self, context, *setup, attempts);
  start_preparer(self, context, *setup);
  start_control(self, context);
  start_caretaker(self, context);
  start_intake(self, context);
  self->delayed_send(self, kTick, tick_atom::value);
  return {
      [](ready_atom) { return true; },
      [=](tick_atom) {
        if (self->state.stopping) return;
        self->delayed_send(self, kTick, tick_atom::value);
        try {
          on_tick(self->state, context);
        } catch (const StorageError& error) {
          spdlog::error("the store refuses work: {}", error.what());
        }
        // Also of who waits for a store that could take more later.
        give_up_lost_store(*context, *setup);
      },
      [=](replaced_atom, const DeviceSetup& device) {
        if (!self->state.stopping) on_replaced(self, context, setup, device);
      },
      [=](lost_atom, std::uint32_t device, const std::string& why) {
        if (!self->state.stopping) on_not_replaced(context, device, why);
      },
      [=](flush_atom, bool) {
        self->state.stopping = true;
        kill_device_group(self, context);
        kill(self, context->directory.get<PreparerActor>());
        kill(self, context->directory.get<ControlActor>());
        kill(self, context->directory.get<CaretakerActor>());
        kill(self, context->directory.get<IntakeActor>());
        self->quit();
        return true;
      },
  };
}

}  // namespace batchmill
